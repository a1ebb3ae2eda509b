"""YAML of plain data, whoever wrote it: no tags, no anchors or aliases, no absurd nesting.

With aliases a small file can stand for one that no memory holds. Imports nothing of the package; yaml when it parses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

MAX_DEPTH: Final = 16
_MAY_HAVE_ALIASES: Final = re.compile(r"[&*!]\S")


def loader_class() -> Any:
    """PyYAML's safe loader, the fast one where it is there."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_plain(text: str) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError for what is none or no plain data."""
    import yaml

    loader = loader_class()
    if _MAY_HAVE_ALIASES.search(text):
        refuse_hostile(text, loader)
    return yaml.load(text, Loader=loader)


def refuse_hostile(text: str, loader: Any) -> None:
    """Look through the events before anything is built from them. Raises yaml.MarkedYAMLError for what is not plain."""
    import yaml

    depth = 0
    events: Iterator[Any] = yaml.parse(text, Loader=loader)
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            problem = "anchors and aliases are not allowed here"
        elif getattr(event, "tag", None):
            problem = f"the tag {event.tag} is not allowed here"
        elif depth > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} levels deep"
        else:
            continue
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
