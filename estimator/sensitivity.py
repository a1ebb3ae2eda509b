"""What moves an estimate, and by how much: the same request with one input changed at a time.

Imports `key_figures` and `request`. Nothing is differentiated: every change is estimated like any other request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from .errors import InputError
from .key_figures import KeyFigures, key_figures
from .placement import HOST, slot_count
from .quantization import weights
from .speed_curves import request_of

if TYPE_CHECKING:
    from .efficiency import Efficiency
    from .estimation import Estimate
    from .request import Request
    from .system import Device

SHARE: Final = 0.10  # by which rates are raised
LADDER: Final = ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "F16")  # steps of quantisation
STACKED_CLASSES: Final = ("desktop", "workstation", "datacenter")


@dataclass(frozen=True)
class Effect:
    """A change, and the figures with it."""

    change: str
    base: KeyFigures
    changed: KeyFigures

    @property
    def decode(self) -> float:
        """Relative change of one sequence's tokens/s, with the context full: 0.08 is 8 % faster."""
        return self.changed.tokens_per_s / self.base.tokens_per_s - 1

    @property
    def aggregate(self) -> float:
        """Relative change of the tokens/s of all sequences together."""
        return self.changed.aggregate_tokens_per_s / self.base.aggregate_tokens_per_s - 1

    @property
    def prefill(self) -> float:
        """Relative change of the prompt's tokens/s."""
        return self.changed.prefill_tokens_per_s / self.base.prefill_tokens_per_s - 1

    @property
    def ttft(self) -> float:
        """Relative change of the time to the first token: -0.1 is 10 % sooner."""
        return self.changed.ttft_s / self.base.ttft_s - 1

    @property
    def device_bytes(self) -> int:
        """Change of the bytes in the memories of the devices."""
        return self.changed.memory.device_bytes - self.base.memory.device_bytes


def sensitivities(source: Request | Estimate, efficiency: Efficiency | None = None) -> tuple[Effect, ...]:
    """The effects of changes that one could make or buy, in a fixed order; those that are impossible are left out."""
    request = request_of(source)
    base = key_figures(request, efficiency)
    return tuple(Effect(name, base, figures) for name, figures in _changed(request, efficiency))


def _changed(request: Request, efficiency: Efficiency | None) -> Iterator[tuple[str, KeyFigures]]:
    """(name, figures) of every change that is possible."""
    for name, change in _CHANGES.items():
        try:
            changed = change(request)
            if changed is not None:
                yield name.format(**_words(request)), key_figures(changed, efficiency)
        except InputError:  # llama.cpp refuses the combination, or the catalog lacks a figure
            continue


def _words(request: Request) -> dict[str, str]:
    w = request.workload
    return {
        "smaller": _neighbour(request, -1) or "",
        "larger": _neighbour(request, 1) or "",
        "ubatch": f"{2 * w.ubatch:,}",
        "parallel": str(2 * w.parallel),
        "half": f"{max(request.room // 2, 1):,}",
        "device": request.devices[0].name,
    }


def _with_devices(request: Request, change: Callable[[Device], Device]) -> Request:
    devices = tuple(change(device) for device in request.devices)
    return replace(request, system=replace(request.system, devices=devices))


def _more_bandwidth(request: Request) -> Request:
    return _with_devices(
        request, lambda device: replace(device, bandwidth_bytes_per_s=device.bandwidth_bytes_per_s * (1 + SHARE))
    )


def _more_host_bandwidth(request: Request) -> Request | None:
    host, placement = request.system.host, request.placement
    if placement is None or HOST not in placement.slots or host.cpu is None:
        return None
    cpu = replace(host.cpu, bandwidth_bytes_per_s=host.cpu.bandwidth_bytes_per_s * (1 + SHARE))
    given = host.bandwidth_bytes_per_s
    faster = replace(host, cpu=cpu, bandwidth_bytes_per_s=None if given is None else given * (1 + SHARE))
    return replace(request, system=replace(request.system, host=faster))


def _more_compute(request: Request) -> Request:
    def faster(peaks: Mapping[str, float]) -> Mapping[str, float]:
        return MappingProxyType({path: peak * (1 + SHARE) for path, peak in peaks.items()})

    return _with_devices(
        request,
        lambda device: replace(
            device,
            peaks_flop_per_s=faster(device.peaks_flop_per_s),
            base_clock_peaks_flop_per_s=faster(device.base_clock_peaks_flop_per_s),
        ),
    )


def _more_power(request: Request) -> Request | None:
    if not all(device.power_watts for device in request.devices):
        return None
    return _with_devices(request, lambda device: replace(device, power_watts=(device.power_watts or 0) * (1 + SHARE)))


def _one_more(request: Request) -> Request | None:
    first = request.devices[0]
    if first.kind != "gpu" or first.device_class not in STACKED_CLASSES:
        return None
    return replace(request, system=replace(request.system, devices=(*request.devices, first)))


def _layers_on_gpu(step: int) -> Callable[[Request], Request | None]:
    """More or fewer layers on the GPUs, where not all are there."""

    def change(request: Request) -> Request | None:
        asked = request.settings
        if asked is None or asked.ngl is None or not 0 <= asked.ngl + step <= slot_count(request.model):
            return None
        return replace(request, settings=replace(asked, ngl=asked.ngl + step))

    return change


def _fewer_expert_layers(request: Request) -> Request | None:
    asked = request.settings
    if asked is None or not asked.n_cpu_moe:
        return None
    return replace(request, settings=replace(asked, n_cpu_moe=asked.n_cpu_moe - 1))


def _cache(kv_type: str) -> Callable[[Request], Request | None]:
    def change(request: Request) -> Request | None:
        w = request.workload
        if kv_type in (w.kv_type_k, w.kv_type_v) or not w.flash_attention:
            return None
        return replace(request, workload=replace(w, kv_type_k=kv_type, kv_type_v=kv_type))

    return change


def _neighbour(request: Request, step: int) -> str | None:
    """The next file type of the ladder; None at its ends, and for files that are what they are."""
    if request.quantisation not in LADDER:
        return None
    at = LADDER.index(request.quantisation) + step
    return LADDER[at] if 0 <= at < len(LADDER) else None


def _requantised(step: int) -> Callable[[Request], Request | None]:
    def change(request: Request) -> Request | None:
        name = _neighbour(request, step)
        if name is None:
            return None
        return replace(request, weights=weights(request.model, name), quantisation=name)

    return change


def _half_context(request: Request) -> Request | None:
    w = request.workload
    if request.room < 2 or request.prompts[0] + w.output > request.room // 2:
        return None
    return replace(request, workload=replace(w, context=w.context // 2))


def _twice_ubatch(request: Request) -> Request | None:
    w = request.workload
    if 2 * w.ubatch > w.batch or request.prompts[0] <= w.ubatch:
        return None
    return replace(request, workload=replace(w, ubatch=2 * w.ubatch))


def _twice_parallel(request: Request) -> Request:
    """As many sequences more, each with the same context."""
    w = request.workload
    return replace(request, workload=replace(w, parallel=2 * w.parallel, context=2 * w.context))


def _without_flash_attention(request: Request) -> Request | None:
    w = request.workload
    return replace(request, workload=replace(w, flash_attention=False)) if w.flash_attention else None


_CHANGES: Final[dict[str, Callable[[Request], Request | None]]] = {
    "+10 % memory bandwidth": _more_bandwidth,
    "+10 % host memory bandwidth": _more_host_bandwidth,
    "+10 % compute": _more_compute,
    "+10 % power limit": _more_power,
    "q8_0 KV cache": _cache("Q8_0"),
    "q4_0 KV cache": _cache("Q4_0"),
    "{smaller} quantisation": _requantised(-1),
    "{larger} quantisation": _requantised(1),
    "half the context ({half})": _half_context,
    "ubatch {ubatch}": _twice_ubatch,
    "{parallel} sequences": _twice_parallel,
    "no flash attention": _without_flash_attention,
    "one layer more on the GPU": _layers_on_gpu(1),
    "one layer less on the GPU": _layers_on_gpu(-1),
    "experts of one layer more on GPU": _fewer_expert_layers,
    "one more {device}": _one_more,
}
