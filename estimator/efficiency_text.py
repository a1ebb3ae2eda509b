"""The shipped efficiency file, read line by line: a YAML parser takes longer over it than an estimate takes.

Its layout is fixed (fit_corpus writes it); tests/test_efficiency_text.py proves that this reads what YAML reads.
"""

from __future__ import annotations

import re
from typing import Any, Final

_FIRST_LEVEL: Final = "\nbackends:\n"
_LINE: Final = re.compile(r"^(?:(\w+):|  (\S+):|    (\S+): \[(\S+), (\S+)\]|  (\S+): \[(\S+), (\S+)\])$", re.MULTILINE)


def parse(text: str) -> dict[str, Any]:
    """The content of an efficiency file as `fit_corpus` writes it: the head by YAML, the factors line by line."""
    import yaml

    head, found, body = text.partition(_FIRST_LEVEL)
    data: dict[str, Any] = yaml.load(head, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    section = machine = data["backends"] = {}
    for match in _LINE.finditer(found + body):
        level, key, name, mean, sd, correction, its_mean, its_sd = match.groups()
        if name is not None:
            machine[name] = (float(mean), float(sd))
        elif correction is not None:
            section[correction] = (float(its_mean), float(its_sd))
        elif key is not None:
            machine = section[key] = {}
        else:
            section = data[level] = {}
    return data
