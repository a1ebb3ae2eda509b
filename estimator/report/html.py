"""An Estimate as an HTML fragment, which notebooks show in place of its repr."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..units import gib
from .layout import margin
from .rows import SPEED_COLUMNS, speed_rows, title

if TYPE_CHECKING:
    from ..estimation import Estimate


def fragment(e: Estimate) -> str:
    """A heading, the memory line and one table of speeds."""
    m = e.memory
    heading = f"{title(e)} · context {e.request.workload.context:,}"
    memory = (
        f"{gib(m.total_bytes)} needed: weights {gib(m.weights_bytes)}, KV cache {gib(m.kv_cache_bytes)}; "
        f"{margin(m.margin_bytes)}"
    )
    head = "".join(f"<th>{name}</th>" for name in SPEED_COLUMNS)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in speed_rows(e))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<p><b>{escape(heading)}</b><br>{escape(memory)}</p>{table}"
