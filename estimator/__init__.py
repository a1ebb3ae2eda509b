"""llmcalc: roofline estimates of LLM inference on local and small-server hardware.

    import llmcalc
    e = llmcalc.estimate(gpu="rtx4090", model="llama3-8b", quant="q4", ctx="32k")
    e.decode[0].tokens_per_s, e.latency.ttft_s, e.memory.fits

Names are imported when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .architecture import Model
    from .comparison import Comparison, compare
    from .device_catalog import custom_device, find_device, list_devices
    from .distinct import decode_seconds, prefill_seconds
    from .drafting import drafting_gain
    from .errors import InputError, LlmcalcError, UnknownNameError
    from .estimation import Estimate, estimate, estimate_request
    from .importers.gguf import read_gguf
    from .importers.hf_config import read_config
    from .memory import MemoryPlan, memory_plan
    from .memory_summary import MemoryReport, memory_report
    from .model_catalog import find_model, list_models
    from .parameter_sweep import Sweep, sweep
    from .planner import Goals, Plan, plan
    from .planner_models import suitable_models
    from .planner_upgrades import upgrades
    from .planner_users import users_table
    from .prompt_cache import replay
    from .quantization import Weights, weights
    from .request import Request, resolve
    from .sensitivity import sensitivities
    from .service import load_of, serve
    from .session_patterns import chat_session
    from .system import Device, Host, Link, System
    from .timing import PhaseTime, decode_time, prefill_time
    from .workload import Workload

_HOME = {
    "Model": "architecture",
    "Comparison": "comparison",
    "compare": "comparison",
    "custom_device": "device_catalog",
    "find_device": "device_catalog",
    "list_devices": "device_catalog",
    "drafting_gain": "drafting",
    "InputError": "errors",
    "LlmcalcError": "errors",
    "UnknownNameError": "errors",
    "Estimate": "estimation",
    "estimate": "estimation",
    "estimate_request": "estimation",
    "read_gguf": "importers.gguf",
    "read_config": "importers.hf_config",
    "MemoryPlan": "memory",
    "memory_plan": "memory",
    "MemoryReport": "memory_summary",
    "memory_report": "memory_summary",
    "find_model": "model_catalog",
    "list_models": "model_catalog",
    "Sweep": "parameter_sweep",
    "sweep": "parameter_sweep",
    "Goals": "planner",
    "Plan": "planner",
    "plan": "planner",
    "suitable_models": "planner_models",
    "upgrades": "planner_upgrades",
    "users_table": "planner_users",
    "replay": "prompt_cache",
    "Weights": "quantization",
    "weights": "quantization",
    "Request": "request",
    "resolve": "request",
    "sensitivities": "sensitivity",
    "load_of": "service",
    "serve": "service",
    "chat_session": "session_patterns",
    "Device": "system",
    "Host": "system",
    "Link": "system",
    "System": "system",
    "PhaseTime": "timing",
    "decode_seconds": "distinct",
    "prefill_seconds": "distinct",
    "decode_time": "timing",
    "prefill_time": "timing",
    "Workload": "workload",
}

__all__ = [
    "Comparison", "Device", "Estimate", "Goals", "Host", "InputError", "Link", "LlmcalcError", "MemoryPlan",
    "MemoryReport", "Model", "PhaseTime", "Plan", "Request", "Sweep", "System", "UnknownNameError", "Weights",
    "Workload", "chat_session", "compare", "custom_device", "decode_seconds", "decode_time", "drafting_gain",
    "estimate", "estimate_request", "find_device", "find_model", "list_devices", "list_models", "load_of",
    "memory_plan", "memory_report", "plan", "prefill_seconds", "prefill_time", "read_config", "read_gguf",
    "replay", "resolve", "sensitivities", "serve", "suitable_models", "sweep", "upgrades", "users_table",
    "weights",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
