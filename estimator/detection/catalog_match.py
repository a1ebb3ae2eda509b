"""What tools report → catalog entries, with a sentence for whatever had to be decided or could not be.

Imports the catalog, `spellings`, `facts`. A name decides; memory decides among the variants of one name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ..catalog import open_catalog
from ..device_catalog import find_device, list_devices
from ..errors import InputError, UnknownNameError
from ..names import normalise, reduce_name
from ..system import Device, DeviceKind
from ..units import gib
from .facts import CpuReport, GpuReport, MemoryReport
from .spellings import gpu_inside, is_choice, is_family_name, is_max_q, spellings

GPU_KINDS: Final[tuple[DeviceKind, ...]] = ("gpu", "apu", "apple", "soc")
CPU_KINDS: Final[tuple[DeviceKind, ...]] = ("cpu", "soc")
_APPLE: Final[tuple[DeviceKind, ...]] = ("apple",)

# A driver keeps part of the memory (ECC takes a sixteenth) and rounds; an SoC's firmware keeps more.
_LEAST_SHARE: Final = 0.90
_LEAST_SHARE_SHARED: Final = 0.80
_LARGEST_SHARE: Final = 1.02
_VARIANT: Final = r"\d+ ?gb|gcd|gddr\d\w?|(?:(?:lp)?ddr\dx?|mrdimm)(?: \d{4,5})?|mod|aftermarket|memory|one|of|two"
_MEMORY_IN_ID: Final = r"-(?:(?:lp)?ddr\dx?|mrdimm)-\d+$"

# x86 cores by (vendor, family, models): what a hypervisor leaves visible of a CPU whose name it hides.
_ARCHITECTURES: Final = (
    ("AuthenticAMD", 23, range(0x31, 0x32), "Zen 2"),
    ("AuthenticAMD", 25, range(0x10), "Zen 3"),
    ("AuthenticAMD", 25, range(0x10, 0x20), "Zen 4"),
    ("AuthenticAMD", 25, range(0xA0, 0xB0), "Zen 4c"),
    ("AuthenticAMD", 26, range(0x10), "Zen 5"),
    ("AuthenticAMD", 26, range(0x10, 0x20), "Zen 5c"),
    ("GenuineIntel", 6, range(79, 80), "Broadwell-EP"),
    ("GenuineIntel", 6, range(106, 107), "Ice Lake-SP"),
    ("GenuineIntel", 6, range(143, 144), "Sapphire Rapids"),
    ("GenuineIntel", 6, range(207, 208), "Emerald Rapids"),
    ("GenuineIntel", 6, range(173, 174), "Granite Rapids"),
    ("GenuineIntel", 6, range(175, 176), "Sierra Forest"),
)


@dataclass(frozen=True)
class Match:
    """The entry that a report means, or the reason why there is none; and what was assumed."""

    device: Device | None
    reason: str | None = None
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Surroundings:
    """What the rest of the machine says about a part."""

    memory: MemoryReport = field(default_factory=MemoryReport)
    cpu_names: tuple[str, ...] = ()
    laptop: bool = False


def match_gpu(gpu: GpuReport, around: Surroundings) -> Match:
    """The catalog entry of a GPU."""
    if gpu.vendor == "apple":
        return _match_apple(gpu, around)
    names = gpu.names
    if is_family_name(names[0]):
        names = (*gpu_inside(around.cpu_names), *names)
    hits, closest = _by_names(names, gpu.memory_bytes, GPU_KINDS)
    if not hits and gpu.isa and gpu.units:
        hits = [each for each in list_devices() if (each.isa, each.units) == (gpu.isa, gpu.units)]
    hits = _one_of_memory_variants(hits, around.memory)
    if len(hits) != 1:
        return Match(None, _unmapped(gpu, hits, closest))
    return _checked(gpu, hits[0], around)


def _by_names(
    names: Iterable[str], memory_bytes: float | None, kinds: Collection[DeviceKind]
) -> tuple[list[Device], tuple[str, ...]]:
    """Entries that the first understood name may mean, and the closest ids of the first name that is not understood."""
    closest: tuple[str, ...] = ()
    for name in names:
        found: dict[str, Device] = {}
        for form in spellings(name):
            hits, candidates = _variants(form, memory_bytes, kinds)
            closest = closest or candidates
            found |= {each.id: each for each in hits}
            if found and not is_choice(name):
                break
        fitting = [each for each in found.values() if fits(each, memory_bytes)] or list(found.values())
        if fitting:
            return fitting, closest
    return [], closest


def _variants(
    name: str, memory_bytes: float | None, kinds: Collection[DeviceKind]
) -> tuple[list[Device], tuple[str, ...]]:
    """Entries that `name` means: the one of this name unless its memory contradicts, else its variants that fit.

    Also ids that are close to a name which means none.
    """
    closest: tuple[str, ...] = ()
    try:
        found = [find_device(name, kinds)]
    except UnknownNameError as unknown:
        ambiguous = "may mean any of" in str(unknown)
        found = [find_device(id) for id in unknown.candidates if ambiguous and _is_variant(id, name)]
        closest = () if ambiguous else unknown.candidates
    except InputError:
        return [], ()
    if memory_bytes is None or (len(found) == 1 and fits(found[0], memory_bytes)):
        return found, closest
    variants = [find_device(id) for id in open_catalog("hardware").ids() if _is_variant(id, name)]
    sold = [each for each in variants if each.kind in kinds and fits(each, memory_bytes)]
    return sold or found, closest


def _is_variant(id: str, name: str) -> bool:
    """Whether a name of the entry is `name` and a size or kind of memory."""
    return normalise(reduce_name(name, "hardware")) in _variant_stems(open_catalog("hardware").names(id))


@lru_cache(maxsize=2048)
def _variant_stems(names: tuple[str, ...]) -> frozenset[str]:
    """What is left of names without a size or kind of memory at their end, as names are compared."""
    words = [reduce_name(name, "hardware").split() for name in names]
    return frozenset(
        normalise("".join(each[:n]))
        for each in words
        for n in range(1, len(each))
        if re.fullmatch(rf"(?:(?:{_VARIANT})(?: |$))+", " ".join(each[n:]))
    )


def fits(device: Device, memory_bytes: float | None) -> bool:
    """Whether a device sold with some memory may report `memory_bytes`; true where one of them is unknown."""
    if memory_bytes is None or not device.memory_options_bytes:
        return True
    least = _LEAST_SHARE_SHARED if device.unified_memory else _LEAST_SHARE
    return any(least * size <= memory_bytes <= _LARGEST_SHARE * size for size in device.memory_options_bytes)


def _one_of_memory_variants(hits: Sequence[Device], memory: MemoryReport) -> list[Device]:
    """Of entries that differ in the host's memory alone, that with memory of this kind and the nearest rate."""
    stems = {re.sub(_MEMORY_IN_ID, "", each.id) for each in hits}
    if len(stems) != 1 or not any(re.search(_MEMORY_IN_ID, each.id) for each in hits):
        return list(hits)
    stem = next(iter(stems))
    ids = [id for id in open_catalog("hardware").ids() if re.sub(_MEMORY_IN_ID, "", id) == stem]
    family = [find_device(id) for id in ids]
    kind, rate = memory.kind, memory.transfers_per_s
    same = [each for each in family if kind and _kind(each.memory_type) == _kind(kind)]
    if not same or rate is None:
        return list(hits)
    return [min(same, key=lambda each: abs((each.memory_transfers_per_s or 0.0) - rate))]


def _kind(memory_type: str | None) -> str:
    """LPDDR5X counts as LPDDR5, which is what firmware calls it."""
    return (memory_type or "").split(" ")[0].rstrip("X")


def _checked(gpu: GpuReport, device: Device, around: Surroundings) -> Match:
    """The entry, or the laptop part of its name in a laptop; with what does not agree."""
    name, said = gpu.names[0], []
    laptop = _laptop_part(device) if around.laptop and device.device_class == "desktop" else None
    if laptop is not None:
        said.append(f"{name}: drivers call the laptop part like the card; in a laptop it is taken to be {laptop.id}")
        device = laptop
    if is_max_q(name):
        said.append(f"{name}: a Max-Q part runs at lower clocks than {device.id}, whose figures are used")
    if device.unified_memory:
        return Match(device, None, (*said, *_assumed_memory_kind(name, device, around)))
    if gpu.memory_bytes is None:
        seen = " and ".join(dict.fromkeys(gpu.sources))
        said.append(f"{name} was seen by {seen} only, without its memory: {device.id} is assumed, with its own")
    elif not fits(device, gpu.memory_bytes):
        sizes = " or ".join(gib(size) for size in device.memory_options_bytes)
        said.append(
            f"{name} reports {gib(gpu.memory_bytes)} where {device.id} has {sizes}: the size reported is used, "
            f"bandwidth and peaks are those of {device.id}"
        )
    return Match(device, None, tuple(said))


def _assumed_memory_kind(name: str, device: Device, around: Surroundings) -> tuple[str, ...]:
    """That the kind of memory was assumed, of a GPU whose entries differ in it."""
    if around.memory.kind is not None or device.kind != "apu" or not re.search(_MEMORY_IN_ID, device.id):
        return ()
    return (f"{name}: kind and speed of the memory are unknown, {device.id} is assumed; name another with --gpu",)


def _laptop_part(device: Device) -> Device | None:
    """The laptop part that drivers call by the name of a desktop card: Pascal's and Turing's have one name for both."""
    if device.architecture not in ("Pascal", "Turing", "Turing (no tensor cores)"):
        return None
    try:
        return find_device(re.sub(r"-\d+gb$", "", device.id) + "-laptop")
    except InputError:
        return None


def _unmapped(gpu: GpuReport, hits: Sequence[Device], closest: Sequence[str]) -> str:
    seen = f"{gpu.names[0]} (seen by {gpu.sources[0]})"
    if hits:
        ids = ", ".join(each.id for each in hits[:8])
        missing = "" if gpu.memory_bytes else "; its memory, which would tell, was not reported"
        return f"{seen} may be any of {ids}{missing}; name it with --gpu"
    return f"{seen} is no entry of the catalog{_close(closest)}; name a similar one, or `custom` with figures, by --gpu"


def _close(ids: Sequence[str]) -> str:
    return f" (closest: {', '.join(ids[:3])})" if ids else ""


def _match_apple(gpu: GpuReport, around: Surroundings) -> Match:
    """A chip and its number of GPU cores; without the number, the bin that has this memory or the full chip."""
    chip = next((name for name in (*gpu.names, *around.cpu_names) if name.lower().startswith("apple")), gpu.names[0])
    try:
        full = find_device(chip, _APPLE)
    except UnknownNameError as unknown:
        return Match(
            None, f"{chip} is no entry of the catalog{_close(unknown.candidates)}; name a similar one with --gpu"
        )
    bins = [each for each in list_devices() if each.kind == "apple" and each.architecture == full.architecture]
    bins = [each for each in bins if _chip(each) == _chip(full)]
    if gpu.units is None:
        return _apple_without_count(chip, full, len(bins) > 1)
    counted = [each for each in bins if each.units == gpu.units]
    if counted:
        return Match(counted[0])
    known = ", ".join(f"{each.id} ({each.units})" for each in bins)
    return Match(None, f"{chip} with {gpu.units} GPU cores is no entry of the catalog, which has {known}")


def _chip(device: Device) -> str:
    return re.sub(r" \(.*", "", device.name)


def _apple_without_count(chip: str, full: Device, several: bool) -> Match:
    if not several:
        return Match(full)
    said = f"{chip}: the number of GPU cores is unknown, all {full.units} of {full.id} are assumed"
    return Match(full, None, (said,))


def match_cpu(cpu: CpuReport, memory: MemoryReport) -> Match:
    """The catalog entry of a CPU, or of the SoC that it is part of."""
    hits, closest = _by_names((name for name in cpu.names if not _hides_model(name)), None, CPU_KINDS)
    hits = _one_of_memory_variants(hits, memory)
    if len(hits) == 1:
        return Match(hits[0])
    if not cpu.names:
        return Match(None, "the CPU's model is unknown: nothing here names it; name it with --cpu")
    name = f"CPU {cpu.names[0]}"
    if hits:
        return Match(None, f"{name} may be any of {', '.join(each.id for each in hits[:8])}; name it with --cpu")
    if any(map(_hides_model, cpu.names)):
        return Match(None, _hidden(cpu))
    return Match(None, f"{name} is no entry of the catalog{_close(closest)}; name a similar one with --cpu")


def _hides_model(name: str) -> bool:
    """Whether a hypervisor gives the family's name in place of the model's."""
    bare = re.sub(
        r"(?i)\((?:r|tm)\)|@.*|\bcpu\b|\bvirtual\b|\bprocessor\b|\([^)]*\)|-(?:rome|milan|genoa|turin)\b", " ", name
    )
    generic = r"(?i)(?:amd )?epyc|(?:intel )?xeon|intel core|qemu.*|common kvm.*|virt-?[\d.]*|neoverse-\w\d"
    return bool(re.fullmatch(generic, " ".join(bare.split())))


def _hidden(cpu: CpuReport) -> str:
    """That the model is hidden, and which entries have such cores."""
    architecture = _architecture(cpu)
    said = (
        f"CPU {cpu.names[0]}: the hypervisor hides the model" if cpu.hypervisor else f"CPU {cpu.names[0]} is no model"
    )
    if architecture is None:
        return f"{said}; name it with --cpu"
    servers = [each for each in list_devices() if each.architecture == architecture and each.device_class == "server"]
    ids = ", ".join(each.id for each in servers[:8])
    return f"{said}; its cores are {architecture}, as those of {ids or 'no entry'}; name it with --cpu"


def _architecture(cpu: CpuReport) -> str | None:
    if cpu.family is None:
        return None
    vendor, family, model = cpu.family
    rows = (row for row in _ARCHITECTURES if row[:2] == (vendor, family) and model in row[2])
    return next((row[3] for row in rows), None)
