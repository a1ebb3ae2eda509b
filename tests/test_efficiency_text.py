"""The quick reader of the shipped efficiency file reads what YAML reads."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

from llmcalc.efficiency_text import parse


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def test_the_shipped_file_is_read_as_yaml_reads_it() -> None:
    text = files("llmcalc").joinpath("efficiency.yaml").read_text(encoding="utf-8")
    assert plain(parse(text)) == plain(yaml.safe_load(text))
