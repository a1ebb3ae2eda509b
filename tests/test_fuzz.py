"""Hostile and damaged input: every reader answers, or says in one sentence what is wrong; nothing else comes out.

What is mutated are true files: the catalogs, a profile, a trace. The readers of benchmark output, GGUF headers,
configurations and detection tools have tests of the same kind beside their own.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llmcalc
from llmcalc.axes import machine_axis, name_axis, number_axis
from llmcalc.calibration.profiles import from_text, to_text
from llmcalc.catalog_files import MAX_FILE_BYTES, parse_text, read_text, scan_text
from llmcalc.cli import run
from llmcalc.device_catalog import device_from_fields
from llmcalc.efficiency import shipped
from llmcalc.errors import InputError
from llmcalc.lengths import parse_length
from llmcalc.model_catalog import model_from_fields
from llmcalc.tensors import total_params
from llmcalc.traces import read_trace
from llmcalc.units import EXAMPLES, Dimension, parse, parse_tokens

ROOT = Path(__file__).resolve().parent.parent
CATALOG_FILES = sorted([*ROOT.glob("hardware/*.yaml"), *ROOT.glob("models/*.yaml")])

fuzz = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SPECIAL = ["", "-", "nan", "inf", "-inf", "1e999", "9" * 400, "0x10", "1_0", "١٢", "½", "\x00", "\ud800", "é\u202e",
           "../..", "~", "null", "true", ".5.", "1..", "..", "1..2..3", "=", ",", "{", "[" * 50, "&a", "*a", "!!x y",
           "%s%n", "{0}", "\u2028", "\r", "a" * 5000]  # fmt: skip
NUMBERS = [0, -1, 1, 2**31, 2**63, 2**64, 10**40, 0.5, -0.0, 1e-320, 1e308, float("inf"), float("nan"), True]
junk_text = st.sampled_from(SPECIAL) | st.text(max_size=30) | st.text(string.printable, max_size=30)
junk = st.recursive(
    st.none() | st.sampled_from(NUMBERS) | st.integers() | st.floats() | junk_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(junk_text, inner, max_size=4),
    max_leaves=8,
)
damages = st.lists(st.tuples(st.floats(0, 1), junk_text, st.integers(0, 60)), min_size=1, max_size=6)


def damaged(text: str, places: list[tuple[float, str, int]]) -> str:
    for place, inserted, removed in places:
        at = int(place * len(text))
        text = text[:at] + inserted + text[at + removed :]
    return text.encode("utf-8", "replace").decode("utf-8")  # as read from a file: no lone surrogates


def refused(read: Callable[[], object]) -> str | None:
    """What the reader said against its input, None where it took it."""
    try:
        read()
    except InputError as error:
        assert str(error)
        return str(error)
    return None


# Catalogs


@pytest.fixture(scope="module")
def catalog_texts() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in CATALOG_FILES]


@given(st.text(max_size=200) | st.text(" \n:-[]{}#&*!|>'\"ab1", max_size=200))
@fuzz
def test_any_text_is_a_catalog_or_refused(text: str) -> None:
    refused(lambda: [block.parsed_fields() for block in parse_text(text, "test.yaml")])


@given(st.data())
@fuzz
def test_a_damaged_catalog_is_read_or_refused(catalog_texts: list[str], data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(catalog_texts))
    begin = data.draw(st.integers(0, len(text) - 1))
    text = damaged(text[begin : begin + 3000], data.draw(damages))
    refused(lambda: [block.parsed_fields() for block in parse_text(text, "test.yaml")])


def entries_of(kind: str) -> list[tuple[str, dict[str, Any]]]:
    texts = [path.read_text(encoding="utf-8") for path in CATALOG_FILES if path.parent.name == kind]
    return [(block.id, block.parsed_fields()) for text in texts for block in list(scan_text(text, "f"))[:6]]


def changed(fields: dict[str, Any], choose: random.Random, values: list[Any]) -> dict[str, Any]:
    """The fields with some values, anywhere among them, replaced."""
    fields = json.loads(json.dumps(fields, default=str))
    for value in values:
        owner: Any = fields
        key: Any = choose.choice(list(fields))
        while isinstance(owner[key], (dict, list)) and owner[key] and choose.random() < 0.7:
            owner = owner[key]
            key = choose.choice(list(owner)) if isinstance(owner, dict) else choose.randrange(len(owner))
        owner[key] = value
    return fields


DEVICE_ENTRIES, MODEL_ENTRIES = entries_of("hardware"), entries_of("models")


@given(
    st.sampled_from(DEVICE_ENTRIES), st.randoms(use_true_random=False), st.lists(junk, min_size=1, max_size=3),
    junk_text,
)  # fmt: skip
@fuzz
def test_a_device_of_any_values_is_sane_or_refused(
    entry: tuple[str, dict[str, Any]], choose: random.Random, values: list[Any], key: str
) -> None:
    fields = changed(entry[1], choose, values)
    try:
        device = device_from_fields(entry[0], fields, "test.yaml:1")
    except InputError as error:
        assert "test.yaml" in str(error)
        return
    assert 0 < device.bandwidth_bytes_per_s < float("inf")
    assert all(0 < peak < float("inf") for peak in device.peaks_flop_per_s.values())
    refused(lambda: llmcalc.estimate(model="llama3-8b", **{"cpu" if device.is_cpu else "gpu": device}))


@given(st.sampled_from(MODEL_ENTRIES), st.randoms(use_true_random=False), st.lists(junk, min_size=1, max_size=3))
@fuzz
def test_a_model_of_any_values_is_sane_or_refused(
    entry: tuple[str, dict[str, Any]], choose: random.Random, values: list[Any]
) -> None:
    fields = changed(entry[1], choose, values)
    try:
        model = model_from_fields(entry[0], fields, "test.yaml:1")
    except InputError as error:
        assert "test.yaml" in str(error)
        return
    assert total_params(model) > 0


def test_a_catalog_with_aliases_that_multiply_is_refused(tmp_path: Path) -> None:
    bomb = "a: &a {x: [0, 0, 0, 0, 0, 0, 0, 0]}\n"
    for one, other in zip("bcdefghij", "abcdefghi", strict=True):
        bomb += (
            f"{one}: &{one} {{x: [*{other}, *{other}, *{other}, *{other}, *{other}, *{other}, *{other}, *{other}]}}\n"
        )
    assert "aliases are not allowed" in str(refused(lambda: list(parse_text(bomb, "test.yaml"))))
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert "larger than" in str(refused(lambda: read_text(large)))


# Profiles


@pytest.fixture(scope="module")
def profile_text() -> str:
    from calibration_cases import BACKEND, DEVICE, all_cases, measured, truth

    from llmcalc.calibration.machine_runs import MachineRuns
    from llmcalc.calibration.results import calibrate_machines, profile_of

    cases = measured(all_cases()[:4], truth({"memory": 1.0}))
    return to_text(profile_of("mine", calibrate_machines(MachineRuns({(BACKEND, DEVICE): tuple(cases)}, ()))))


def use(text: str) -> None:
    """Read a profile and do with it what the commands do."""
    profile = from_text(text, "mine")
    applied = profile.applied(shipped())
    for machine in profile.machines:
        runner = {"cpu" if machine.device.is_cpu else "gpu": machine.device}
        try:
            llmcalc.estimate(model="llama3-8b", backend=machine.backend, efficiency=applied, **runner)
        except InputError:
            continue
    assert to_text(from_text(to_text(profile), "mine")) == to_text(profile)


@given(damages)
@fuzz
def test_a_damaged_profile_is_used_or_refused(profile_text: str, places: list[tuple[float, str, int]]) -> None:
    refused(lambda: use(damaged(profile_text, places)))


@given(st.randoms(use_true_random=False), st.lists(junk, min_size=1, max_size=3))
@fuzz
def test_a_profile_of_any_values_is_used_or_refused(
    profile_text: str, choose: random.Random, values: list[Any]
) -> None:
    data = changed(yaml.safe_load(profile_text), choose, values)
    refused(lambda: use(yaml.safe_dump(data, allow_unicode=True)))


def test_a_profile_whose_aliases_multiply_is_refused() -> None:
    bomb = "schema: llmcalc.profile/1\na: &a [x, x, x, x, x, x, x, x, x]\n"
    for one, other in zip("bcdefghijk", "abcdefghij", strict=True):
        bomb += f"{one}: &{one} [{', '.join([f'*{other}'] * 9)}]\n"
    assert refused(lambda: from_text(bomb + "created: *k\nmachines: [1]\n", "mine"))


# Traces

TRACES = {
    "t.csv": "arrival_s,prompt,output\n5,100,10\n6.5,200,20\n",
    "u.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,100,10\n",
    "t.jsonl": '{"timestamp_ms": 0, "input_length": 100, "output_length": 10}\n{"time": "2026-01-01", "prompt": 2}\n',
}


@given(st.sampled_from(sorted(TRACES)), damages)
@fuzz
def test_a_damaged_trace_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, places: list[tuple[float, str, int]]
) -> None:
    file = tmp_path_factory.mktemp("trace") / name
    file.write_bytes(damaged(TRACES[name], places).encode("utf-8", "surrogatepass"))
    refused(lambda: read_trace(file))


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["prompt", "output", "time", "arrival_s", "timestamp"]), junk, max_size=4),
        max_size=4,
    )
)
@fuzz
def test_trace_records_of_any_values_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    file = tmp_path_factory.mktemp("trace") / "t.jsonl"
    file.write_bytes("\n".join(map(json.dumps, rows)).encode("utf-8", "surrogatepass"))
    refused(lambda: read_trace(file))


# What is typed


@given(junk | st.sampled_from(sorted(EXAMPLES.values())), st.sampled_from(sorted(EXAMPLES)))
@fuzz
def test_a_quantity_is_a_finite_number_or_refused(value: object, dimension: Dimension) -> None:
    try:
        number = parse(value, dimension, "it")
    except InputError as error:
        assert "it" in str(error)
        return
    assert 0 <= number < float("inf")


numbers = st.sampled_from(["0", "1", "4k", "32k", "1m", "2g", "1e3", "1.5", "-1", "9" * 20, "", "k"])
ranges = st.builds(lambda *parts: "".join(parts), numbers, st.sampled_from(["..", ",", "+", "*", "x", " "]), numbers,
                   st.sampled_from(["+", "*", "..", ",", ""]), numbers)  # fmt: skip


@given(junk | ranges, st.booleans())
@fuzz
def test_an_axis_is_read_or_refused(value: object, doubles: bool) -> None:
    for read in (
        lambda: number_axis(value, "ctx", doubles),
        lambda: machine_axis(value),
        lambda: parse_tokens(value, "x"),
    ):
        refused(read)
    refused(lambda: name_axis(value))
    if isinstance(value, str):
        refused(lambda: parse_length(value, "prompt"))
        refused(lambda: parse_length(f"mean={value},cv={value}", "prompt"))


@pytest.mark.parametrize("text", ["0..16m,0..16m", "1..2g*1.0000001", "1.." + "." * 100_000, ",".join(["0..9m"] * 99)])
def test_axes_made_to_fill_the_memory_are_refused(text: str) -> None:
    assert refused(lambda: number_axis(text, "ctx"))


SETTINGS = (
    "ctx", "prompt", "output", "cached_prefix", "parallel", "kv_type_k", "kv_type_v", "flash_attention", "batch",
    "ubatch", "backend", "ram", "threads", "queue", "quant", "model", "gpu", "cpu", "figures",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(SETTINGS), junk_text, min_size=1, max_size=3))
@fuzz
def test_an_estimate_of_any_text_is_made_or_refused(given: dict[str, Any]) -> None:
    if "parallel" in given:
        given["parallel"] = len(given["parallel"])
    if "threads" in given:
        given["threads"] = len(given["threads"]) - 1
    if "figures" in given:
        given["figures"] = {given["figures"]: given["figures"]}
    refused(lambda: llmcalc.estimate(**{"model": "llama3-8b", "gpu": "rtx4090", **given}))


# Files that the commands are given


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate"], ["calibrate"], ["check"], ["benchmark"], ["profile", "import"], ["models", "show"],
        ["serve", "--gpu", "rtx4090", "--model", "llama3-8b", "--trace"],
        ["estimate", "--gpu", "rtx4090", "--model"],
        ["hardware", "list", "--catalog"],
        ["catalog", "check"],
    ],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("ending", [".json", ".gguf", ".csv", ".yaml", ".jsonl", ".txt", "", "/"])
@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 100, b"\xff\xfe\xff", b"[1, 2", b"a: [b\n", b"GGUF\x03\x00\x00\x00", None]
)
def test_files_of_any_kind_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], ending: str, content: bytes | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("LLMCALC_PROFILES", str(tmp_path / "profiles"))
    path = tmp_path / f"given{ending}"
    if ending == "/":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    assert run([*arguments, str(path)]) in (0, 2)
    assert "internal error" not in capsys.readouterr().err
