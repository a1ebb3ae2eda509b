"""`llmcalc catalog check`: the built-in catalogs are all good, and every kind of mistake is one line that says what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmcalc.catalog import ENVIRONMENT_VARIABLE
from llmcalc.catalog_check import CatalogCheck, check_catalog
from llmcalc.catalog_files import load_entries
from llmcalc.cli import run
from llmcalc.device_catalog import device_from_fields
from llmcalc.device_rules import core_fp32, device_faults, pcie_bandwidth, shader_fp32
from llmcalc.errors import InputError
from llmcalc.model_catalog import model_from_fields
from llmcalc.model_rules import model_faults

CARD = """
card:
  vendor: nvidia
  architecture: Ada Lovelace
  units: 10 SMs
  shader_cores: 1280
  boost_clock: 2 GHz
  memory: 8 GiB
  memory_bus: 128 bit
  memory_rate: 16 GT/s
  bandwidth: 256 GB/s
  peaks: {fp32: 5.12 TFLOPS, fp16: 10.24 TFLOPS}
  derived: {fp16: units × 512 × boost_clock}
  host_link: {name: PCIe 4.0 x16, bandwidth: 31.5 GB/s}
  sources: [datasheet]
"""
CHIP = """
chip: {kind: cpu, cores: 8, boost_clock: 5 GHz, fp32_flop_per_cycle: 32, memory_channels: 2, memory_rate: 5600 MT/s,
       bandwidth: 89.6 GB/s, peaks: {fp32: 1.28 TFLOPS}, sources: [datasheet]}
"""
TINY = """
tiny: {architecture: llama, layers: 4, hidden: 256, vocab: 1000, heads: 4, kv_heads: 2, ffn: 512, parameters: 2873600,
       sources: [config.json]}
"""


@pytest.fixture(autouse=True)
def no_user_catalogs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)


def check(folder: Path, text: str, name: str = "hardware.yaml") -> CatalogCheck:
    """The check of one file with this text."""
    (folder / name).write_text(text, encoding="utf-8")
    return check_catalog([folder / name])


def lines(folder: Path, text: str, name: str = "hardware.yaml") -> list[str]:
    """Its problems, without the file."""
    return [str(problem).removeprefix(f"{folder / name}:") for problem in check(folder, text, name).problems]


def test_the_built_in_catalogs_are_all_good() -> None:
    found = check_catalog()
    assert [str(problem) for problem in found.problems] == []
    assert found.ok and found.notes == ()
    assert found.devices >= 480 and found.models >= 312


@pytest.mark.parametrize(("text", "name"), [(CARD, "hardware.yaml"), (CHIP, "hardware.yaml"), (TINY, "models.yaml")])
def test_good_entries_have_no_problem(text: str, name: str, tmp_path: Path) -> None:
    assert lines(tmp_path, text, name) == []


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("bandwidth: 256", "bandwith: 256", "2: card: unknown field 'bandwith'; did you mean 'bandwidth'?"),
        ("fp32: 5.12", "fp23: 5.12", "2: card: peaks: unknown field 'fp23'; did you mean 'fp32'?"),
        ("256 GB/s", "256", "2: card: bandwidth: expected text with a unit, got '256'; write it like '1008 GB/s'"),
        ("256 GB/s", "256 GB", "bandwidth: '256 GB' has no unit 'GB' of this kind; write it like '1008 GB/s'"),
        ("8 GiB", "8 EiB", "memory: '8 EiB' has no unit"),
        ("8 GiB", "8 MiB", "memory: 0.007812 GiB is far outside what is built (0.25 to 16,384 GiB): check the unit"),
        ("8 GiB", "[8 GiB, 4 GiB]", "memory: sizes that it is sold with must ascend, each there once"),
        ("256 GB/s", "288 GB/s", "bandwidth: 288 GB/s is not bus × rate: 128 bit × 16 GT/s = 256 GB/s;"),
        ("10.24", "12", "peaks: fp16: 12 TFLOPS is not what derived says: units × 512 × boost_clock = 10.24 TFLOPS"),
        ("× 512", "× sms", "derived: fp16: cannot compute 'units × sms × boost_clock': 'sms' is no number"),
        ("  units: 10 SMs\n", "", "cannot compute 'units × 512 × boost_clock': units is not given"),
        ("× 512", "/ 0", "derived: fp16: 'units / 0 × boost_clock' divides by zero"),
        ("5.12", "2.56", "fp32: 2.56 TFLOPS is not units × clock: 2 × 1,280 shader_cores × 2 GHz = 5.12 TFLOPS;"),
        ("5.12 T", "5.12 M", "peaks: fp32: 5.12e-06 TFLOPS is far outside what is built: check the unit"),
        ("31.5", "63", "host_link: bandwidth: 63 GB/s is not that of PCIe 4.0 x16, 31.5 GB/s one way"),
        ("Ada Lovelace", "Ada", "architecture: 'Ada': no generation of it is known;"),
        ("Ada Lovelace", "Ada Lovelance", "architecture: 'Ada Lovelance': did you mean 'Ada Lovelace'?"),
        ("[datasheet]", "[]", "sources: is missing"),
        ("card:", "rtx-4090:", "rtx-4090: 'rtx-4090' is taken by geforce-rtx-4090 (hardware/nvidia-geforce.yaml:"),
        ("vendor:", "aliases: [RTX 3090]\n  vendor:", "card: aliases: 'RTX 3090' is taken by geforce-rtx-3090 ("),
        ("vendor:", "extends: rtx4090x\n  vendor:", "extends: 'rtx4090x' is not the id of an entry; closest: geforce"),
        ("vendor:", "power: 350 J\n  vendor:", "power: '350 J' has no unit 'J' of this kind"),
    ],
)
def test_mistakes_in_a_device(right: str, wrong: str, problem: str, tmp_path: Path) -> None:
    assert CARD.count(right) == 1
    found = lines(tmp_path, CARD.replace(right, wrong))
    assert len([line for line in found if problem in line]) == 1, found


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("1.28", "2.56", "peaks: fp32: 2.56 TFLOPS is not units × clock: 8 cores × 32 fp32_flop_per_cycle × 5 GHz"),
        ("32,", "[32, 16],", None),
        ("89.6", "44.8", "bandwidth: 44.8 GB/s is not bus × rate: 2 channels × 64 bit × 5.6 GT/s = 89.6 GB/s;"),
    ],
)
def test_mistakes_in_a_cpu(right: str, wrong: str, problem: str | None, tmp_path: Path) -> None:
    found = lines(tmp_path, CHIP.replace(right, wrong))
    assert found == [] if problem is None else len(found) == 1 and problem in found[0]


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("heads: 4,", "heds: 4,", "2: tiny: unknown field 'heds'; did you mean 'heads'?"),
        ("heads: 4,", "", "2: tiny: heads: is missing"),
        ("layers: 4", "layers: four", "tiny: layers: expected a whole number, got 'four'"),
        ("layers: 4", "layers: 5", "parameters: 2,873,600 were published, but these shapes make 3,463,936 (+20.54%)"),
        ("2873600", "2900000", "parameters: 2,900,000 were published, but these shapes make 2,873,600 (-0.91%)"),
        ("2873600", "2.9e6", "parameters: expected a whole number, got '2.9e6'"),
        ("layers: 4", "layers: 4, pattern: FFFFF", "pattern: has 5 letters for 4 layers"),
        ("layers: 4", "layers: 4, pattern: FFF", "pattern: 3 letters do not make 4 layers"),
        ("layers: 4", "layers: 4, pattern: FX", "pattern: 'FX' is not a pattern of the letters F, S"),
        ("ffn: 512", "ffn: [512 x 3]", "ffn: the list must have one value for each of the 4 layers, but has 3"),
        ("ffn: 512", "ffn: [512 x 5]", "ffn: the list must have one value for each of the 4 layers, but has more"),
        ("ffn: 512", "ffn: 512, experts: {count: 4, used: 5, ffn: 8}", "experts: used: 5 is not between 1 and 4"),
        ("ffn: 512", "ffn: 512, experts: {count: 4, used: 2, ffn: 8, dense_layers: 9}", "dense_layers: 9 is more than"),
        ("ffn: 512", "ffn: 512, active_parameters: 9000000", "active_parameters: 9,000,000 were published, but"),
        ("architecture: llama", "architecture: lama", "architecture: unknown architecture 'lama' (did you mean llama"),
        ("[config.json]", "[]", "sources: is missing"),
        ("tiny:", "llama3:8b:", "'llama3:8b' is taken by llama3-8b (models/llama.yaml:"),
    ],
)
def test_mistakes_in_a_model(right: str, wrong: str, problem: str, tmp_path: Path) -> None:
    assert TINY.count(right) == 1
    found = lines(tmp_path, TINY.replace(right, wrong), "models.yaml")
    assert len([line for line in found if problem in line]) == 1, found


def test_what_a_checkpoint_also_holds_explains_a_larger_count_only(tmp_path: Path) -> None:
    tower = TINY.replace("parameters: 2873600", "also_holds: a vision tower, parameters: {}")
    assert lines(tmp_path, tower.replace("{}", "3000000"), "models.yaml") == []
    assert "parameters: 2,800,000 were published" in lines(tmp_path, tower.replace("{}", "2800000"), "models.yaml")[0]


def test_all_problems_are_listed_in_the_order_of_files_and_entries(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(TINY.replace("heads: 4,", "heads: many,"), encoding="utf-8")
    text = CARD.replace("8 GiB", "8").replace("31.5", "63") + CARD.replace("card", "rtx-4090").replace(
        "16 GT/s", "fast"
    )
    (tmp_path / "hardware.yaml").write_text(text + "wrong: {price: cheap}\n", encoding="utf-8")
    found = check_catalog([tmp_path])
    places = [(Path(one.file).name, one.entry, one.field) for one in found.problems]
    assert places == [
        ("hardware.yaml", "card", "memory"),
        ("hardware.yaml", "card", "host_link: bandwidth"),
        ("hardware.yaml", "rtx-4090", None),
        ("hardware.yaml", "rtx-4090", "memory_rate"),
        ("hardware.yaml", "wrong", "bandwidth"),
        ("hardware.yaml", "wrong", "price"),
        ("hardware.yaml", "wrong", "sources"),
        ("models.yaml", "tiny", "heads"),
    ]
    assert (found.devices, found.models, len(found.files)) == (3, 1, 2)


def test_a_file_that_is_no_yaml_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "a.yaml").write_text("a:\n  b: [\n", encoding="utf-8")
    (tmp_path / "hardware" / "b.yaml").write_text("b: {bandwidth: slow}\n", encoding="utf-8")
    found = [(Path(one.file).name, one.line, one.entry) for one in check_catalog([tmp_path]).problems]
    assert found == [("a.yaml", 3, None), ("b.yaml", 1, "b"), ("b.yaml", 1, "b")]


def test_an_entry_may_extend_one_of_another_file_and_is_judged_whole(tmp_path: Path) -> None:
    overclocked = "mine: {extends: geforce-rtx-4090, memory_rate: 23 GT/s}\n"
    assert "mine: bandwidth: 1,008 GB/s is not bus × rate: 384 bit × 23 GT/s" in lines(tmp_path, overclocked)[0]
    assert lines(tmp_path, overclocked.replace("}", ", bandwidth: 1104 GB/s}")) == []
    below, above = tmp_path / "below", tmp_path / "above"
    for folder, text in ((below, CARD), (above, "mine: {extends: card, name: My card}\n")):
        folder.mkdir()
        (folder / "hardware.yaml").write_text(text, encoding="utf-8")
    assert not check_catalog([above]).ok
    assert check_catalog([above], [below]).ok


def test_own_catalogs_are_checked_without_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hardware.yaml").write_text("own: {bandwidth: 1 TB/s}\n", encoding="utf-8")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    assert [(one.entry, one.field) for one in check_catalog().problems] == [("own", "sources")]
    assert len(check_catalog([tmp_path / "hardware.yaml"]).problems) == 1  # not laid over itself


def test_ids_that_are_there_twice_or_replace_others(tmp_path: Path) -> None:
    twice = [tmp_path / "hardware-1.yaml", tmp_path / "hardware-2.yaml"]
    for path in twice:
        path.write_text(CARD, encoding="utf-8")
    assert "card: is in " in str(check_catalog(twice).problems[0])
    replacing = check(tmp_path, CARD.replace("card", "geforce-rtx-4090"))
    assert replacing.ok
    assert "geforce-rtx-4090 replaces the entry of this id" in replacing.notes[0]


@pytest.mark.parametrize(("text", "devices", "models"), [(CARD, 1, 0), (TINY, 0, 1), ("x: {extends: llama3-8b}", 0, 1)])
def test_a_file_of_any_name_is_told_by_its_fields(text: str, devices: int, models: int, tmp_path: Path) -> None:
    found = check(tmp_path, text, "new.yaml")
    assert (found.devices, found.models, found.problems) == (devices, models, ())
    assert "are read" in found.notes[0]


def test_paths_without_a_catalog(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds none of hardware/\*.yaml"):
        check_catalog([tmp_path])
    with pytest.raises(InputError, match=r"absent.yaml"):
        check_catalog([tmp_path / "absent.yaml"])


# Rules


def test_rules_know_what_they_need() -> None:
    ((_, fields, _),) = load_entries(CARD, "f.yaml")
    card = device_from_fields("card", fields, "f")
    assert shader_fp32(card) == 5.12e12 and core_fp32(card) is None
    assert pcie_bandwidth("PCIe 5.0 x8") == pytest.approx(31.5e9, rel=0.001) and pcie_bandwidth("NVLink 3") is None
    bare = device_from_fields("bare", {"bandwidth": "1 TB/s"}, "f")
    assert shader_fp32(bare) is None
    assert list(device_faults(bare)) == []


def test_a_model_without_a_published_count_is_not_judged_by_it() -> None:
    ((_, fields, _),) = load_entries(TINY, "f.yaml")
    fields = {key: value for key, value in fields.items() if key != "parameters"}
    assert list(model_faults(model_from_fields("tiny", fields, "f"), fields)) == []


# Command


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hardware.yaml"
    path.write_text(CARD, encoding="utf-8")
    assert run(["catalog", "check", str(path)]) == 0
    assert capsys.readouterr().out == "all good: 1 device and 0 models in 1 file\n"
    path.write_text(CARD.replace("8 GiB", "8") + CHIP.replace("chip", "a b"), encoding="utf-8")
    assert run(["catalog", "check", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines() == [
        f"{path}:2: card: memory: expected text with a unit, got '8'; write it like '24 GiB'",
        "1 problem: 2 devices and 0 models in 1 file",
    ]


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hardware.yaml"
    path.write_text(CARD.replace("8 GiB", "8"), encoding="utf-8")
    assert run(["catalog", "check", str(path), "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "llmcalc.catalog_check/1"
    assert data["ok"] is False and (data["devices"], data["models"]) == (1, 0)
    (problem,) = data["problems"]
    assert {key: problem[key] for key in ("line", "entry", "field")} == {"line": 2, "entry": "card", "field": "memory"}
