"""llama-batched-bench: its table and its JSON lines (llama.cpp b11434, tools/batched-bench/batched-bench.cpp).

A line gives two rates. With B > 1 sequences both are aggregates over all of them, which are never compared with a
single stream. The same table without column B is llama-sweep-bench's: one stream, N_KV positions in the cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from .collector import EVERYTHING, Collector
from .values import Malformed, optional_count, optional_flag, optional_real

_SETTINGS: Final = ("n_batch", "n_ubatch", "flash_attn", "n_gpu_layers", "n_threads")
_CONFIG_LINE: Final = re.compile(r"n_kv_max = \d+.{0,40}n_batch = \d+")
_CONFIG_FIELD: Final = re.compile(r"\b(\w{1,20}) = (-?\d{1,12})\b")
_COLUMNS: Final = {
    "pp": "pp", "tg": "tg", "b": "pl", "n_kv": "n_kv", "t_pp s": "t_pp", "s_pp t/s": "speed_pp", "t_tg s": "t_tg",
    "s_tg t/s": "speed_tg",
}  # fmt: skip


def is_record(value: Mapping[str, Any]) -> bool:
    """Whether this is an object of `--output-format jsonl`."""
    return {"pp", "tg"} <= value.keys() and ("speed_tg" in value or "t_tg" in value or "speed_pp" in value)


def is_header(cells: list[str]) -> bool:
    """Whether these are the headings of the table."""
    names = {cell.lower() for cell in cells}
    return {"pp", "tg"} <= names and ("s_pp t/s" in names or "s_tg t/s" in names)


def columns(cells: list[str]) -> list[str | None]:
    """The record's field of each heading."""
    return [_COLUMNS.get(cell.lower()) for cell in cells]


def read_config(line: str, out: Collector) -> bool:
    """Take the settings that stand before the table; False where `line` is another one."""
    if "n_kv_max" not in line or not _CONFIG_LINE.search(line[:1000]):
        return False
    found = dict(_CONFIG_FIELD.findall(line[:1000]))
    out.batched_settings = {
        name: found[name] for name in (*_SETTINGS, "is_pp_shared", "is_tg_separate") if name in found
    }
    return True


def add(record: Mapping[str, Any], line: int, out: Collector) -> None:
    """Add the runs of one line: its prompt processing and its generation."""
    try:
        for fields in _runs({**out.batched_settings, **record}):
            out.add(fields, line, EVERYTHING)
    except Malformed as error:
        out.problem(line, str(error))


def _runs(record: Mapping[str, Any]) -> list[dict[str, object]]:
    pp, tg = (optional_count(record.get(name), name.upper()) or 0 for name in ("pp", "tg"))
    sweep = "pl" not in record and "n_kv" in record
    parallel = 1 if sweep else optional_count(record.get("pl"), "B")
    if not parallel:
        raise Malformed("B, the number of sequences, is missing or zero")
    depth = (optional_count(record.get("n_kv"), "N_KV") or 0) if sweep else 0
    shared = optional_flag(record.get("is_pp_shared"), "is_pp_shared")
    separate = optional_flag(record.get("is_tg_separate"), "is_tg_separate")
    settings = {name: record.get(name) for name in _SETTINGS}
    if sweep:
        settings["engine"] = "ik_llama.cpp"
    runs: list[dict[str, object]] = []
    if pp:
        n = 1 if shared else parallel
        runs.append({**settings, "n_prompt": pp, "n_depth": depth, "n_parallel": n, **_rate(record, "pp", pp * n)})
    if tg:
        n = 1 if separate else parallel
        depth = depth if sweep else pp
        runs.append({**settings, "n_gen": tg, "n_depth": depth, "n_parallel": n, **_rate(record, "tg", tg * parallel)})
    return runs


def _rate(record: Mapping[str, Any], phase: str, n_tokens: int) -> dict[str, object]:
    seconds = optional_real(record.get(f"t_{phase}"), f"T_{phase.upper()}")
    printed = record.get(f"speed_{phase}")
    if optional_real(printed, f"S_{phase.upper()}") is None and seconds:
        return {"avg_ts": n_tokens / seconds}
    return {"avg_ts": printed}
