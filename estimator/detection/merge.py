"""Several tools see the same GPU: their reports as one list, each GPU once.

The first source that sees a GPU gives its place in the list and counts where sources differ; later ones fill gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..names import reduce_name
from .facts import CpuReport, GpuReport


def merge_reports(sources: Iterable[Sequence[GpuReport]]) -> tuple[GpuReport, ...]:
    """Reports of each source, the most trusted source first, as one report a GPU.

    Two reports are of one GPU if they give the same PCI address. Without one, a source's GPU of a maker is paired with
    the GPU of that maker and name, else with the next one of that maker, that the source has not spoken of yet.
    """
    merged: list[GpuReport] = []
    for reports in sources:
        unspoken = list(range(len(merged)))
        left = list(reports)
        for same in (_same_bus, _same_name, _same_maker):
            left = _fill(merged, unspoken, left, same)
        merged += left
    return tuple(merged)


def _fill(
    merged: list[GpuReport], unspoken: list[int], reports: list[GpuReport], same: Callable[[GpuReport, GpuReport], bool]
) -> list[GpuReport]:
    """Fill gaps of those GPUs of `merged` that `same` pairs with a report; the reports that are left over."""
    left = []
    for report in reports:
        index = next((i for i in unspoken if same(merged[i], report)), None)
        if index is None:
            left.append(report)
        else:
            unspoken.remove(index)
            merged[index] = _both(merged[index], report)
    return left


def _same_bus(a: GpuReport, b: GpuReport) -> bool:
    return a.bus is not None and a.bus == b.bus


def _same_name(a: GpuReport, b: GpuReport) -> bool:
    if not _same_maker(a, b):
        return False
    names = [{reduce_name(name, "hardware") for name in report.names} - {""} for report in (a, b)]
    return not names[0].isdisjoint(names[1])


def _same_maker(a: GpuReport, b: GpuReport) -> bool:
    """Whether they may be one GPU: of one maker, not at two addresses, not one integrated and the other not."""
    apart = (a.bus and b.bus and a.bus != b.bus) or {a.integrated, b.integrated} == {True, False}
    return a.vendor == b.vendor and not apart


def _both(first: GpuReport, second: GpuReport) -> GpuReport:
    return replace(
        first,
        names=tuple(dict.fromkeys(first.names + second.names)),
        sources=first.sources + second.sources,
        memory_bytes=first.memory_bytes or second.memory_bytes,
        borrowed_bytes=first.borrowed_bytes or second.borrowed_bytes,
        units=first.units or second.units,
        isa=first.isa or second.isa,
        bus=first.bus or second.bus,
        link=first.link or second.link,
        integrated=second.integrated if first.integrated is None else first.integrated,
        power_limit_watts=first.power_limit_watts or second.power_limit_watts,
    )


def merge_cpus(first: CpuReport, second: CpuReport) -> CpuReport:
    """Two sources on the same processors; the first counts where they differ."""
    return CpuReport(
        names=tuple(dict.fromkeys(first.names + second.names)),
        sockets=first.sockets or second.sockets,
        cores=first.cores or second.cores,
        threads=first.threads or second.threads,
        family=first.family or second.family,
        hypervisor=first.hypervisor or second.hypervisor,
        cache_bytes=first.cache_bytes or second.cache_bytes,
    )
