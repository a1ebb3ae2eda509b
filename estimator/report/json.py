"""An Estimate as the JSON object `llmcalc.estimate/1`: keys may be added to it, none changes its meaning."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..estimation import Estimate

SCHEMA: Final = "llmcalc.estimate/1"


def as_dict(estimate: Estimate) -> dict[str, Any]:
    """Plain numbers (SI), text, lists and dictionaries."""
    return {
        "schema": SCHEMA,
        "inputs": _inputs(estimate),
        "memory": estimate.memory.to_dict(),
        "placement": _placement(estimate),
        "prefill": [asdict(p) for p in estimate.prefill],
        "decode": [asdict(d) for d in estimate.decode],
        "weights_ceiling_tokens_per_s": estimate.weights_ceiling_tokens_per_s,
        "latency": asdict(estimate.latency),
        "basis": list(estimate.basis),
        "check_command": estimate.check_command,
        "notes": list(estimate.notes),
    }


def render(estimate: Estimate) -> str:
    """The object as text, indented; not-a-number never occurs in it."""
    return json.dumps(as_dict(estimate), indent=2, allow_nan=False, ensure_ascii=False)


def _inputs(e: Estimate) -> dict[str, Any]:
    r = e.request
    host = r.system.host
    return {
        "devices": [device.id for device in r.devices],
        "host_cpu": host.cpu.id if host.cpu else None,
        "host_memory_bytes": host.memory_bytes,
        "backend": r.backend,
        "model": r.model.id,
        "quantisation": r.quantisation,
        "prompts": list(r.prompts),
        "queue_s": r.queue_s,
        "workload": asdict(r.workload),
    }


def _placement(e: Estimate) -> dict[str, Any] | None:
    """Where layers, caches and moved tensors lie: indices of devices, -1 for the host; None: all on the one device."""
    placement = e.request.placement
    if placement is None:
        return None
    layers = range(e.request.model.n_layers)
    return {
        "flags": list(e.request.settings.flags()) if e.request.settings else [],
        "layers": list(placement.slots[: e.request.model.n_layers]),
        "output": placement.output,
        "caches": [placement.cache_device(i) for i in layers],
        "moved_tensors": dict(placement.moved),
        "tensor_shares": list(placement.split),
    }
