"""Names as tools print them → names to look up in the catalog, the most specific first. Imports nothing of the package.

Each rule is something that one tool, driver or board adds to a name and another leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

_RULES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"[®™]|\((?:r|tm|c)\)", ""),
        # Mesa and ANV put the chip behind the name, Windows the memory of an iGPU.
        (r"\s*\((?:radv|nvk|dg2|bmg|mtl|arl|lnl|ptl|adl|rpl|rkl|tgl|icl|ehl|jsl|kbl|cfl|llvm)\b[^)]*\)", ""),
        (r"\s*\(nvgpu\)", ""),
        (r"\s*\(\d+ ?gb\)$", ""),
        # Boards and packages of one chip.
        (r"\s*\((?:mcm)\)|\b(?:oam|ac mba|hf|vf|sxm6 ac|lite hash rate|hbm2e|hbm3e?)\b", ""),
        (r"-(?:ls|n)$", ""),
        (r"\bseries$", ""),
        # One laptop part under the names of three generations of drivers, and of the list of PCI devices.
        (r"\b(rtx \d{4}(?: ti)?) (\d+ ?gb) laptop gpu$", r"\1 Laptop \2"),
        (r"\blaptop gpu$", "Laptop"),
        (r"\bwith max-q design$|\b(?:mobile|max-q)\b(?: / (?:mobile|max-q))?$", "Laptop"),
        # Boards around a chip.
        (r"\braspberry pi (\d) .*", r"Raspberry Pi \1"),
        (r"^snapdragon.*\b(x1[ep])-?(\d\d)-?(\d{3})\b.*", r"\1-\2-\3"),
        (r"^ampere altra (?:max )?processor ", "Ampere Altra "),
        (r"^grace a\d+$", "Grace"),
    )
)
# Custom chips whose driver does not say what machine they are in.
_CUSTOM: Final = {"custom gpu 0405": "steam-deck-lcd", "custom gpu 0932": "steam-deck-oled"}
# What Intel's drivers call the GPU of some CPUs is the name of the family alone.
_GPU_OF_CPU: Final = (
    (r"radeon\s+(\d{3,4}[ms])\b", r"Radeon \1"),
    (r"\bultra [79] 1[568]5h\b", "Meteor Lake iGPU"),
)
# GPUs inside CPUs: AMD's by the code name of the chip, Intel's by any name but that of a card.
_AMD_INSIDE: Final = (
    r"(?i)\b(?:raven|picasso|renoir|lucienne|cezanne|barcelo|rembrandt|mendocino|raphael|dragon range|phoenix\d?|hawk "
    r"point|granite ridge|strix(?: halo| point)?|krackan|van ?gogh)\b|radeon(?:\(tm\))? (?:vega \d+ )?graphics"
)
_INTEL_CARD: Final = r"(?i)\barc(?:\(tm\))? (?:pro )?[ab]\d|\bdg[12]\b|battlemage|\bmax \d{4}|data center|gaudi"


def spellings(name: str) -> tuple[str, ...]:
    """`name`, and `name` after each rule that changes it; of a name with alternatives, each of them."""
    parts = [part for part in _alternatives(name) if part != name]
    forms = list(dict.fromkeys(form for part in (*parts, name) for form in _rewritten(part)))
    custom = [id for text, id in _CUSTOM.items() if text in name.lower()]
    return (*custom, *forms)


def _rewritten(name: str) -> Iterator[str]:
    form = " ".join(name.split())
    yield form
    for pattern, replacement in _RULES:
        changed = " ".join(pattern.sub(replacement, form).split())
        if changed and changed != form:
            form = changed
            yield form


def _alternatives(name: str) -> Sequence[str]:
    """The parts that a name lists, in the brackets of the list of PCI devices or between slashes; else the name.

    "GeForce RTX 3070 Mobile / Max-Q" is one part; "Radeon RX 7900 XT/7900 XTX/7900M" are three.
    """
    bracket = re.search(r"\[([^\]]+)\]", name)
    listed = bracket[1] if bracket else name
    if re.search(r"(?i)mobile / max-q|\bw/ ", listed) or not (bracket or " / " in listed):
        return (listed,)
    return [part.strip() for part in listed.split("/") if part.strip()]


def is_choice(name: str) -> bool:
    """Whether a name stands for several parts, of which this one is any."""
    return len(_alternatives(name)) > 1


def gpu_inside(cpu_names: Sequence[str]) -> tuple[str, ...]:
    """Names of the GPU that a CPU of this name has inside, where the name or a rule says so."""
    return tuple(
        match.expand(name)
        for text in cpu_names
        for pattern, name in _GPU_OF_CPU
        if (match := re.search(pattern, re.sub(r"(?i)\((?:r|tm)\)", "", text), re.IGNORECASE))
    )


def is_family_name(name: str) -> bool:
    """Whether a GPU's name is that of a whole family, such as "AMD Radeon Graphics", or no name at all."""
    bare = re.sub(r"(?i)\((?:r|tm|c)\)|[®™]|\s*\([^)]*\)$", "", name)
    return bool(re.fullmatch(r"(?i)(?:amd |intel )?(?:radeon|arc|iris xe|vega|uhd)?\s*(?:graphics|gpu)?|gfx\w+", bare))


def is_max_q(name: str) -> bool:
    """Whether a driver says that the part is a Max-Q one, which is slower than the laptop part of the same name."""
    return bool(re.search(r"(?i)\bwith max-q design$", name))


def is_inside_cpu(name: str, vendor: str) -> bool:
    """Whether a GPU of this name and maker is part of a CPU, as far as the name tells."""
    if vendor == "intel":
        return not re.search(_INTEL_CARD, name)
    return vendor == "amd" and bool(re.search(_AMD_INSIDE, name))
