"""The quick reader of the shipped efficiency file reads what YAML reads."""

from __future__ import annotations

from importlib.resources import files

import pytest
import yaml

from llmcalc.efficiency_text import CORRECTIONS, LEVELS, Content, parse

TEXT = files("llmcalc").joinpath("efficiency.yaml").read_text(encoding="utf-8")


def read(text: str) -> Content:
    return parse(text, lambda mean, sd: [mean, sd])


def test_the_shipped_file_is_read_as_yaml_reads_it() -> None:
    head, levels, corrections = read(TEXT)
    sections = {name: dict(section) for name, section in levels.items()}
    assert head | sections | {CORRECTIONS: dict(corrections)} == yaml.safe_load(TEXT)
    assert [list(section) for section in levels.values()] == [list(yaml.safe_load(TEXT)[name]) for name in LEVELS]


def test_what_is_not_there_is_not_found() -> None:
    _, levels, corrections = read(TEXT)
    assert levels["devices"].get("CUDA/nothing") is None
    assert "memory" not in corrections
    with pytest.raises(KeyError):
        levels["backends"]["CUD"]


def test_sections_without_entries_are_empty() -> None:
    head, levels, corrections = read("schema: x\nbackends:\n  CPU:\n    memory: [1.0, 0.5]\ncorrections: {}\n")
    assert head == {"schema": "x"}
    assert dict(levels["backends"]) == {"CPU": {"memory": [1.0, 0.5]}}
    assert len(corrections) == len(levels["devices"]) == 0
