"""Rows of a measurement file in this project's columns → runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast, get_args

from ..runs import COLUMNS, Origin, Phase, Run, RunClass
from . import machine
from .eras import checked_era
from .record import flash_attention
from .values import Malformed, optional_count, optional_real, optional_text, optional_whole, positive, shown

REQUIRED: Final = frozenset({"phase", "t_s"})
_TEXT: Final = (
    "id", "source", "date", "build", "hardware_id", "device_detail", "model_id", "model_label", "quant", "split_mode",
    "type_k", "type_v", "notes",
)  # fmt: skip
_COUNTS: Final = ("device_count", "n_cpu_moe", "threads", "n_batch", "n_ubatch")
_TOKENS: Final = ("n_prompt", "n_gen", "n_depth")
_REALS: Final = ("weights_gib", "params_b", "t_s_std")


def run_of(row: Mapping[str, str], file: str, line: int) -> Run:
    """The run of one row (column → text; columns may be missing). Raises Malformed for values of the wrong kind."""
    known = {name: row.get(name, "").strip() for name in COLUMNS}
    values: dict[str, object] = {name: optional_text(known[name]) for name in _TEXT}
    values |= {name: optional_count(known[name], name) for name in _COUNTS}
    values |= {name: optional_count(known[name], name) or 0 for name in _TOKENS}
    values |= {name: optional_real(known[name], name) for name in _REALS}
    phase = _one_of(known["phase"].lower(), "phase", get_args(Phase))
    return Run(
        **values,  # type: ignore[arg-type]
        era=checked_era(known["era"]),
        engine=known["engine"] or "llama.cpp",
        backend=machine.backend({"backends": known["backend"]}),
        ngl=optional_whole(known["ngl"], "ngl"),
        flash_attn=flash_attention(known["flash_attn"]),
        phase=cast(Phase, phase),
        n_parallel=optional_count(known["n_parallel"], "n_parallel") or 1,
        t_s=positive(known["t_s"], "t_s"),
        class_=cast(
            "RunClass | None", _one_of(known["class"].lower(), "class", get_args(RunClass)) if known["class"] else None
        ),
        origin=Origin(file, line),
    )


def _one_of(text: str, name: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise Malformed(f"{name} is {shown(text)}, not one of {', '.join(allowed)}")
    return text
