"""Names of devices and models as people, drivers and file systems write them, brought to one form.

Imports nothing. What counts as the same name is decided here, for look-up as for the proof that no two entries share
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal

CatalogKind = Literal["hardware", "models"]

_SIGNS: Final = " \t-_/:,()"  # that make no difference
_IGNORED: Final = str.maketrans(dict.fromkeys(_SIGNS, "") | {"+": "plus"})
_SMALL: Final = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz")

# Patterns are compiled when first used: most look-ups need none of them.
# What drivers and operating systems put around the name of a device.
_DEVICE_NOISE: Final = r"""(?x) \((?:r|tm|c)\) | [®™©] | @.* | \bw(?:ith|/)\ radeon\ .* | \(radv\ .*\)
      | \b(?:macbook(?:\ (?:pro|air))?|mac\ (?:studio|mini)|imac)\b
      | \b\d+(?:st|nd|rd|th)\ gen\b | \b\d+-core(?:s$|\ processor\b) | \bprocessor\b | \bcorporation\b"""
_DEVICE_VENDOR_WORDS: Final = frozenset({
    "nvidia", "geforce", "tesla", "amd", "ati", "radeon", "intel", "qualcomm", "broadcom",
    "gpu", "cpu", "graphics", "chip",
})  # fmt: skip
_MODEL_VENDOR_WORDS: Final = frozenset({"meta", "google", "microsoft", "nvidia", "ibm", "openai", "mistralai"})
_MODEL_FILE_ENDING: Final = r"\.gguf$|-\d{5}-of-\d{5}$|[-_.](?:i1-)?gguf$"
_MODEL_QUANTISATION: Final = r"[-_.:](?:ud-|i1-)?(?:(?:iq|tq|q)\d[a-z0-9_]*|bf16|f16|fp16|f32|mxfp4(?:_moe)?)$"
_MODEL_TRAINING: Final = r"[-_ ](?:instruct|chat|it|hf|base|thinking)$"
_WORD_BREAK: Final = r"[\s_/,()-]+"


def normalise(name: str) -> str:
    """The form in which names are compared: no case, spaces, or signs but the dot; "+" is "plus"."""
    return name.casefold().translate(_IGNORED)


def normalise_all(names: Iterable[str]) -> list[str]:
    """`normalise` of each name, in one pass over the text of all."""
    listed = list(names)
    return normalise("\n".join(listed)).split("\n") if listed else []


def flattened(text: bytes) -> bytes:
    """UTF-8 text whose ASCII names are in the form of `normalise`, for `mentions`; in one pass, as files are large."""
    return text.translate(_SMALL, _SIGNS.encode()).replace(b"+", b"plus")


def mentions(flat: bytes, form: str) -> bool:
    """Whether the name with the normalised `form` may be in the text that `flattened` gave; false for certain."""
    return not form.isascii() or form.encode() in flat


def simpler_forms(name: str, kind: CatalogKind) -> Iterator[str]:
    """`name` and simpler forms of it in the order to try them, the last one that of `reduce_name`.

    Models lose, in turn, the owner of the repository, `.gguf`, shard numbers and "-GGUF", and the quantisation.
    """
    yield name
    form = name
    if kind == "models":
        yield (form := name.casefold().strip().rsplit("/", 1)[-1])
        for ending in (_MODEL_FILE_ENDING, _MODEL_QUANTISATION, _MODEL_FILE_ENDING):
            while (shorter := re.sub(ending, "", form)) != form:
                yield (form := shorter)
    yield reduce_name(form, kind)


@lru_cache(maxsize=8192)  # a name that nobody claims is compared with every name of the catalog, several times
def reduce_name(name: str, kind: CatalogKind) -> str:
    """`name` without what two names of one thing may differ in, its words parted by single spaces.

    Devices lose vendor and brand words, trademark signs, and the clock rates and core counts that drivers print
    ("NVIDIA GeForce RTX 4090" → "rtx 4090"). Models lose the owner and the words for the way of training ("-Instruct").
    """
    form = name.casefold().strip()
    if kind == "hardware":
        form, vendors = re.sub(_DEVICE_NOISE, " ", form), _DEVICE_VENDOR_WORDS
    else:
        form, vendors = form.rsplit("/", 1)[-1], _MODEL_VENDOR_WORDS
        while (shorter := re.sub(_MODEL_TRAINING, "", form)) != form:
            form = shorter
    return " ".join(word for word in re.split(_WORD_BREAK, form) if word and word not in vendors)


def goes_on_from(longer: str, name: str, kind: CatalogKind) -> bool:
    """Whether `longer` begins with `name` and has more words after it ("A100 PCIe 40GB" from "a100")."""
    start = normalise(reduce_name(name, kind))
    words = reduce_name(longer, kind).split()
    return bool(start) and any(normalise("".join(words[:n])) == start for n in range(1, len(words)))


def closest(name: str, claims: Mapping[str, Sequence[str]], kind: CatalogKind, n: int = 5) -> tuple[str, ...]:
    """Up to `n` ids of `claims` (id → names) that resemble `name`: those that contain it, then the most similar."""
    from difflib import SequenceMatcher

    wanted = normalise(reduce_name(name, kind))[:64]
    scores: dict[str, float] = {}
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    for id, names in claims.items():
        for form in {normalise(reduce_name(each, kind)) for each in names} - {""}:
            matcher.set_seq1(form)
            contained = len(wanted) > 2 and wanted in form
            if contained or (matcher.real_quick_ratio() >= 0.6 and matcher.quick_ratio() >= 0.6):
                scores[id] = max(scores.get(id, 0.0), contained + matcher.ratio())
    ranked = sorted((id for id, score in scores.items() if score >= 0.6), key=lambda id: -scores[id])
    return tuple(ranked[:n])
