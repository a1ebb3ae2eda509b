"""What was found in catalog files: a line a problem, and what was looked at."""

from __future__ import annotations

from typing import Any

from ..catalog_check import CatalogCheck
from .layout import Style

SCHEMA = "llmcalc.catalog_check/1"


def catalog_check_page(check: CatalogCheck, style: Style) -> list[str]:
    """Every problem in one line, which is not wrapped, and the sum of them."""
    lines = [str(problem) for problem in check.problems]
    lines += [f"note: {note}" for note in check.notes]
    looked_at = f"{_several(check.devices, 'device')} and {_several(check.models, 'model')}"
    files = _several(len(check.files), "file")
    verdict = style.paint("all good", "green", "bold") if check.ok else _several(len(check.problems), "problem")
    return [*lines, f"{verdict}: {looked_at} in {files}"]


def catalog_check_data(check: CatalogCheck) -> dict[str, Any]:
    """The same for --json."""
    return {
        "schema": SCHEMA,
        "ok": check.ok,
        "files": list(check.files),
        "devices": check.devices,
        "models": check.models,
        "problems": [
            {"file": one.file, "line": one.line, "entry": one.entry, "field": one.field, "problem": one.text}
            for one in check.problems
        ],
        "notes": list(check.notes),
    }


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
