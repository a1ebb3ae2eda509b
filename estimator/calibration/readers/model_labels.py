"""What a label such as "qwen3moe 30B.A3B Q4_K - Medium" and a file name say about architecture and quantisation.

A label's size class comes from the layer count and its quantisation from the file's `general.file_type`; neither need
be true. The file name alone tells mixtures that were chosen per tensor (UD-…, …_XL).
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

from ...file_types import FILE_TYPES

_LABELS: Final = {
    **{file_type.name.lower(): name for name, file_type in FILE_TYPES.items()},
    **{file_type.label.lower(): name for name, file_type in FILE_TYPES.items()},
    # Spellings of other versions.
    "f32": "F32", "q2_k": "Q2_K", "q4_k": "Q4_K_M", "q5_k": "Q5_K_M", "q3_k": "Q3_K_M",
    "iq3_s mix": "IQ3_M", "mxfp4": "MXFP4_MOE",
}  # fmt: skip
_LONGEST_FIRST: Final = sorted(_LABELS, key=len, reverse=True)
_FILE_QUANTISATION: Final = re.compile(
    r"(?:^|[-_.:])(?P<ud>UD[-_])?(?P<type>(?:IQ\d_(?:XXS|XS|NL|S|M|XL)|T?Q\d_(?:K_(?:XXL|XL|S|M|L)|K|0|1)|BF16|F16|FP16|F32"
    r"|MXFP4_MOE|MXFP4|NVFP4))(?=$|[-_.])",
    re.IGNORECASE,
)


def split_label(label: str) -> tuple[str, str | None]:
    """A printed model type → (label without quantisation, file type or None when it names none that exists)."""
    text = " ".join(label.removesuffix("(guessed)").split())
    lowered = text.lower()
    for ending in _LONGEST_FIRST:
        if lowered.endswith(" " + ending):
            return text[: -len(ending)].strip().removesuffix("mostly").strip(), _LABELS[ending]
    return text, None


def architecture(label: str) -> str | None:
    """The GGUF architecture that a printed model type begins with."""
    first = label.split(maxsplit=1)[0] if label.strip() else ""
    return first.lower() if re.fullmatch(r"[A-Za-z][\w.-]*", first) else None


def file_stem(path: str) -> str:
    """Base name of a model file on any system, without ".gguf" and shard numbers."""
    name = PureWindowsPath(PurePosixPath(path).name).name
    name = name[:-5] if name.lower().endswith(".gguf") else name
    return re.sub(r"-\d{5}-of-\d{5}$", "", name)


def file_quantisation(path: str) -> str | None:
    """The quantisation in a file name: "Q4_K_M", "UD-Q4_K_XL"; None where there is none."""
    matches = list(_FILE_QUANTISATION.finditer(file_stem(path)))
    if not matches:
        return None
    name = matches[-1]["type"].upper().replace("FP16", "F16")
    return f"UD-{name}" if matches[-1]["ud"] else _LABELS.get(name.lower(), name)


def quantisation(label_type: str | None, path: str | None) -> str | None:
    """The label's quantisation, unless it says none or the file name tells a mixture chosen per tensor."""
    named = file_quantisation(path) if path else None
    if named and (label_type is None or named not in FILE_TYPES):
        return named
    return label_type
