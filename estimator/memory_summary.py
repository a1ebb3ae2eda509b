"""What `llmcalc memory` answers: the plan by device, the download, and what is the most that still fits.

Imports `memory`, `memory_limits` and `request`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .architecture import Model
from .memory import MemoryPlan, default_placement, memory_plan
from .memory_limits import FittingWeights, Limit, best_file_type, max_context, max_parallel
from .placement import Placement, place
from .quantization import Weights
from .request import DeviceLike, ModelLike, resolve_model, resolve_system, resolve_workload
from .system import Device, System
from .workload import Workload

if TYPE_CHECKING:
    from .placement_settings import PlacementSettings

# The choices worth suggesting, from the most faithful down: no formats of training or conversion, no ternary ones, and
# not the legacy types, which the K types of the same size beat in quality.
_SUGGESTED = (
    "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "IQ4_XS", "Q3_K_L", "Q3_K_M", "IQ3_M", "IQ3_S",
    "Q3_K_S", "IQ3_XS", "IQ3_XXS", "Q2_K", "IQ2_M", "IQ2_S", "Q2_K_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S",
)  # fmt: skip


@dataclass(frozen=True)
class MemoryReport:
    """A memory plan with the limits around it; limits are None where no device's memory is known."""

    model: Model
    weights: Weights
    quantisation: str
    workload: Workload
    plan: MemoryPlan
    max_context: Limit | None
    max_parallel: Limit | None
    best: FittingWeights | None  # the largest file type that fits; None also where nothing is known, or nothing fits

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers in bytes, for `--json`."""
        plan = self.plan
        return {
            "schema": "llmcalc.memory/1",
            "model": self.model.id,
            "quantisation": self.quantisation,
            "context": self.workload.context,
            "parallel": self.workload.parallel,
            **plan.to_dict(),
            "file_bytes": self.weights.file_bytes,
            "file_bytes_estimated": self.weights.metadata_estimated,
            "max_context_tokens": _value(self.max_context),
            "max_context_margin_bytes": _margin(self.max_context),
            "max_parallel": _value(self.max_parallel),
            "max_parallel_margin_bytes": _margin(self.max_parallel),
            "best_quantisation": self.best.file_type if self.best else None,
            "best_quantisation_margin_bytes": self.best.margin_bytes if self.best else None,
            "outside_llama_cpp": [
                {"name": extra.name, "low_bytes": extra.low_bytes, "high_bytes": extra.high_bytes, "why": extra.why}
                for extra in plan.extras
            ],
        }


def _value(limit: Limit | None) -> int | None:
    return limit.value if limit else None


def _margin(limit: Limit | None) -> int | None:
    return limit.margin_bytes if limit else None


def memory_report(
    *,
    model: ModelLike,
    quant: str | None = None,
    gpus: Sequence[DeviceLike] = (),
    cpu: DeviceLike | None = None,
    ram: object = None,
    figures: Mapping[str, object] | None = None,
    folders: Sequence[Path] = (),
    settings: PlacementSettings | None = None,
    rpc: Sequence[DeviceLike] = (),
    all_logits: bool = True,
    **workload: Any,
) -> MemoryReport:
    """The report from names and quantities; `workload` takes the arguments of `request.resolve_workload`.

    Without a device everything is planned on one GPU whose memory is unknown.
    """
    made = resolve_model(model, quant, folders)
    asked, _ = resolve_workload(made.model, output=0, all_logits=all_logits, **workload)
    devices = [*rpc, *gpus]
    system = resolve_system(devices, cpu, ram, figures, folders) if devices or cpu is not None else None
    placement = _placement(made.model, system, settings)
    plan = memory_plan(made.model, made.weights, asked, system, placement)
    if system is None or plan.margin_bytes is None:
        return MemoryReport(made.model, made.weights, made.quantisation, asked, plan, None, None, None)
    names = ("MXFP4_MOE",) if made.model.architecture == "gpt-oss" else _SUGGESTED
    return MemoryReport(
        made.model,
        made.weights,
        made.quantisation,
        asked,
        plan,
        max_context(made.model, made.weights, asked, system, placement),
        max_parallel(made.model, made.weights, asked, system, placement),
        None if made.from_file else best_file_type(made.model, names, asked, system, placement),
    )


def _placement(model: Model, system: System | None, asked: PlacementSettings | None) -> Placement:
    if asked is None:
        return place(model) if system is None else default_placement(model, system)
    from .placement_settings import placement_of

    return placement_of(asked, model, system or System((_UNKNOWN,)), _UNKNOWN_BACKEND)


# Where no device is named, one GPU stands for all that are meant.
_UNKNOWN: Final = Device("gpu", "GPU", "", "gpu", "", "", 1.0)
_UNKNOWN_BACKEND: Final = "CUDA"
