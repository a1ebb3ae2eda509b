"""Markdown tables: llama-bench's, as printed or as pasted into an issue or a chat, and llama-batched-bench's.

Columns go by their headings, which differ by version and by what was varied (llama.cpp b11434,
tools/llama-bench/llama-bench.cpp, markdown_printer; scripts/compare-llama-bench.py). Outer pipes may be missing, cells
may be bold or code, and tables copied from a rendered page have tabs for pipes.
"""

from __future__ import annotations

import re
from typing import Final

from . import batched_bench
from .collector import Collector
from .lines import Lines
from .record import Draft
from .values import Malformed, cell_text, parameters, rate, shown, size_bytes

_MAX_ROW: Final = 4000
_PIPE: Final = re.compile(r"(?<!\\)\|")
_RULE_CELL: Final = re.compile(r":?-{2,}:?|:?-:?")
_TEST: Final = re.compile(
    r"(?:pp ?(?P<prompt>\d{1,9}))?(?: ?\+ ?)?(?:tg ?(?P<gen>\d{1,9}))?(?: ?@ ?(?:d|pp) ?(?P<depth>\d{1,9}))?",
    re.IGNORECASE,
)
_BUILD: Final = re.compile(
    r"[\s`*_]{0,6}build(?:\s?:|[`*_]{1,4}:?|:[`*_]{1,4})\s{0,4}`?(\w{1,40})`?\s{0,4}\((\d{1,7})\)", re.IGNORECASE
)
_ROW_WITHOUT_HEADER: Final = re.compile(
    r"\|[^|]{0,60}\b(?:pp|tg) ?\d{1,7}\b[^|]{0,40}\|[^|]{0,40}\d\.\d[^|]{0,40}\|?\s*$"
)

# Heading, lower case → llama-bench's field.
_FIELDS: Final = {
    "model": "model_type", "model type": "model_type", "size": "model_size", "model size [gib]": "size_gib",
    "params": "model_n_params", "num. of par.": "model_n_params", "backend": "backends", "backends": "backends",
    "ngl": "n_gpu_layers", "gpu layers": "n_gpu_layers", "n_gpu_layers": "n_gpu_layers",
    "sm": "split_mode", "split_mode": "split_mode", "mg": "main_gpu", "main_gpu": "main_gpu",
    "threads": "n_threads", "n_threads": "n_threads", "nkvo": "no_kv_offload", "no_kv_offload": "no_kv_offload",
    "fa": "flash_attn", "flashattention": "flash_attn", "flash_attn": "flash_attn",
    "n_batch": "n_batch", "batch size": "n_batch", "n_ubatch": "n_ubatch", "microbatch size": "n_ubatch",
    "type_k": "type_k", "k type": "type_k", "type_v": "type_v", "v type": "type_v", "f16_kv": "f16_kv",
    "n_cpu_moe": "n_cpu_moe", "ncmoe": "n_cpu_moe", "dev": "devices", "devices": "devices", "ts": "tensor_split",
    "tensor_split": "tensor_split", "ot": "tensor_buft_overrides", "tensor_buft_overrides": "tensor_buft_overrides",
    "gpu": "gpu_info", "device": "gpu_info", "cpu": "cpu_info", "test": "test", "tests": "test",
    "mla": "mla", "amb": "amb", "fmoe": "fmoe", "rtr": "rtr", "ser": "ser",
}  # fmt: skip
_RATE: Final = re.compile(r"(?:t/s|tok/s|tokens/s|tokens per second)(?: (.{1,60}))?")


def read_table(lines: Lines, out: Collector) -> bool:
    """Read the table at the cursor and go beyond it; False where none begins."""
    header = _split(lines.current)
    if len(header) < 2:
        return False
    is_batched = batched_bench.is_header(header)
    is_bench = _is_bench_header(header)
    if not is_batched and not is_bench:
        return _foreign(lines, out)
    lines.index += 1
    if not lines.at_end and _is_rule(lines.current):
        lines.index += 1
    drafts: list[Draft] = []
    while _goes_on(lines, len(header)):
        number, cells = lines.number, _split(lines.current)
        lines.index += 1
        if len(cells) < 2 or _is_rule("|".join(cells)):
            continue
        if len(cells) != len(header):
            out.problem(number, f"{len(cells)} cells where the table's header has {len(header)}")
        elif is_batched:
            names = batched_bench.columns(header)
            batched_bench.add({name: cell for name, cell in zip(names, cells, strict=True) if name}, number, out)
        else:
            drafts += _add_row(header, cells, number, out)
    if is_bench:
        out.last_table = drafts
    return True


def read_build(line: str, out: Collector) -> bool:
    """Take "build: COMMIT (NUMBER)", which stands after the table it speaks of; False where `line` is another one."""
    match = _BUILD.match(line[:200]) if "uild" in line[:40] else None
    if match is None:
        return False
    for draft in out.last_table:
        draft.fields.setdefault("build_commit", match[1])
        draft.fields.setdefault("build_number", match[2])
    out.last_table = []
    out.context.end_of_run()
    return True


def _add_row(header: list[str], cells: list[str], number: int, out: Collector) -> list[Draft]:
    try:
        return [out.add(fields, number) for fields in _records(header, cells)]
    except Malformed as error:
        out.problem(number, str(error))
        return []


def _records(header: list[str], cells: list[str]) -> list[dict[str, object]]:
    """The records of one row: one for each column of rates."""
    named = list(zip((name.lower() for name in header), cells, strict=True))
    text = {_FIELDS[name]: cell for name, cell in named if name in _FIELDS}
    fields: dict[str, object] = dict(text)
    if "model_size" in text:
        fields["model_size"] = size_bytes(text["model_size"])
    if "size_gib" in text:
        fields["model_size"] = size_bytes(f"{text['size_gib']} GiB")
    if "model_n_params" in text:
        fields["model_n_params"] = parameters(text["model_n_params"])
    fields |= _test(text["test"])
    rates = [(match[1], cell) for name, cell in named if (match := _RATE.fullmatch(name))]
    return [{**fields, **_rate(cell), **({"build_commit": label} if label else {})} for label, cell in rates]


def _rate(cell: str) -> dict[str, object]:
    mean, deviation = rate(cell)
    return {"avg_ts": mean, "stddev_ts": deviation}


def _test(name: str) -> dict[str, object]:
    match = _TEST.fullmatch(name.strip())
    if match is None or not (match["prompt"] or match["gen"]):
        raise Malformed(f"test is {shown(name)}, not a test such as 'pp512', 'tg128' or 'tg128 @ d4096'")
    return {"n_prompt": match["prompt"] or "0", "n_gen": match["gen"] or "0", "n_depth": match["depth"] or "0"}


def _is_bench_header(header: list[str]) -> bool:
    names = [name.lower() for name in header]
    return "test" in names and any(_RATE.fullmatch(name) for name in names)


def _goes_on(lines: Lines, width: int) -> bool:
    """Whether the table goes on at the cursor: skips blank lines, and messages of the tool, between its rows."""
    for skipped, line in enumerate(lines.ahead(4)):
        cells = _split(line)
        if len(cells) > 1 and not _is_bench_header(cells) and not batched_bench.is_header(cells):
            lines.index += skipped
            return skipped == 0 or len(cells) == width
        if line.strip() and not line.startswith(("llama", "ggml", "main:")):
            return False
    return False


def _foreign(lines: Lines, out: Collector) -> bool:
    """Report a table of other columns, and rows of a table that lost its header."""
    ahead = lines.ahead(2)
    if len(ahead) == 2 and "|" in ahead[0] and _is_rule(ahead[1]):
        headings = ", ".join(shown(name, 20) for name in _split(ahead[0])[:6])
        out.problem(lines.number, f"a table with the columns {headings} has no 'test' and 't/s'")
        while len(_split(lines.current)) > 1 and "|" in lines.current:
            lines.index += 1
        return True
    if _ROW_WITHOUT_HEADER.search(lines.current[:_MAX_ROW]):
        out.problem(
            lines.number, "this row of a table stands without the table's header, which says what its columns are"
        )
        lines.index += 1
        return True
    return False


def _split(line: str) -> list[str]:
    """Cells of a row, clean; one cell for what is no row."""
    if len(line) > _MAX_ROW:
        return []
    text = line.strip()
    if "|" not in text:
        return [cell_text(cell) for cell in text.split("\t")]
    cells = _PIPE.split(text)
    if not cells[0].strip():
        cells = cells[1:]
    if cells and not cells[-1].strip() and text.endswith("|"):
        cells = cells[:-1]
    return [cell_text(cell) for cell in cells]


def _is_rule(line: str) -> bool:
    """Whether this is the line of hyphens under a header."""
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    return "-" in line and all(_RULE_CELL.fullmatch(cell) for cell in cells)
