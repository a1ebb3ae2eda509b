"""Speed against what lies on the GPU: the curve, its cliff, the break-even, the worth of one more GiB."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

from llmcalc.cli import run
from llmcalc.errors import InputError
from llmcalc.offload_sweep import AS_FAST, OffloadSweep, csv_rows, offload_sweep
from llmcalc.request import resolve
from llmcalc.units import GIB


@cache
def sweep(model: str = "qwen3-14b", quant: str = "Q8_0") -> OffloadSweep:
    return offload_sweep(resolve(model=model, gpu="rtx3060", cpu="ryzen-5-5600x", ram="32GiB", quant=quant, ctx="8k"))


def test_every_number_of_layers_once() -> None:
    points = sweep().points
    assert [point.value for point in points] == list(range(42))
    assert {point.knob for point in points} == {"ngl"}
    rates = [point.decode_tokens_per_s for point in points]
    assert rates == sorted(rates)


def test_the_cliff_is_the_last_that_fits() -> None:
    best = sweep().best
    assert best is not None
    following = next(point for point in sweep().points if point.value == best.value + 1)
    assert best.fits
    assert not following.fits
    assert best.device_bytes < 12 * GIB


def test_below_the_break_even_the_cpu_is_as_fast() -> None:
    size = sweep().break_even_bytes
    assert size is not None
    bar = AS_FAST * sweep().cpu_decode_tokens_per_s
    assert all((point.decode_tokens_per_s >= bar) == (point.device_bytes >= size) for point in sweep().points)


def test_one_more_gib_is_read_off_the_curve() -> None:
    gain, best = sweep().next_gib_tokens_per_s, sweep().best
    assert gain is not None
    assert best is not None
    beyond = [point for point in sweep().points if point.device_bytes >= best.device_bytes + GIB]
    assert 0 < gain <= beyond[0].decode_tokens_per_s - best.decode_tokens_per_s


def test_mixtures_have_a_second_knob() -> None:
    points = sweep("qwen3-30b-a3b", "Q4_K_M").points
    experts = [point for point in points if point.knob == "n_cpu_moe"]
    assert [point.value for point in experts] == list(range(48, -1, -1))
    best = sweep("qwen3-30b-a3b", "Q4_K_M").best
    assert best is not None
    assert best.knob == "n_cpu_moe"


def test_what_fits_whole_has_nothing_to_gain() -> None:
    whole = sweep("llama3-8b", "Q4_K_M")
    assert whole.next_gib_tokens_per_s is None
    assert whole.sentences()[0].startswith("All of it fits")


def test_the_csv_has_a_row_a_point() -> None:
    rows = csv_rows(sweep())
    assert len(rows) == 1 + len(sweep().points)
    assert rows[0][:2] == ("knob", "value")


def test_a_cpu_alone_has_nothing_to_offload_to() -> None:
    with pytest.raises(InputError, match="no GPU"):
        offload_sweep(resolve(model="qwen3-14b", cpu="ryzen-5-5600x"))


def out(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 0
    return capsys.readouterr().out


MACHINE = (
    "--gpu",
    "rtx3060",
    "--cpu",
    "ryzen-5-5600x",
    "--no-profile",
    "-m",
    "qwen3-30b-a3b",
    "-q",
    "q4",
    "--ctx",
    "8k",
)


def test_offload_command(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(out(capsys, "offload", "--sweep", *MACHINE, "--json"))
    assert data["schema"] == "llmcalc.offload/1"
    assert len(data["points"]) == 50 + 49
    page = out(capsys, "offload", *MACHINE)
    assert "-ngl" in page
    assert "does not fit" in page
    assert "One more GiB" in page
    assert out(capsys, "offload", *MACHINE, "--csv").startswith("knob,value,device_bytes")


def test_fit_command(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(out(capsys, "fit", *MACHINE, "--fix-kv", "--fix-ubatch", "--json"))
    assert all(choice["fits"] for choice in data["choices"])
    assert data["choices"][0]["command"].startswith("llama-server -m qwen3-30b-a3b-Q4_K_M.gguf")
    page = out(capsys, "fit", *MACHINE, "--fix-kv", "--fix-ubatch")
    assert "--fit is what llama.cpp chooses by itself" in page
    assert "llama-bench" in page


def test_placement_options_reach_estimate_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    estimate = json.loads(out(capsys, "estimate", *MACHINE, "-ncmoe", "20", "--format", "json"))
    host = estimate["memory"]["devices"][-1]
    memory = json.loads(out(capsys, "memory", *MACHINE[:4], *MACHINE[5:], "--n-cpu-moe", "20", "--json"))
    assert memory["devices"][-1]["model_bytes"] == host["model_bytes"] > 5e9
    assert estimate["check_command"].endswith("-ncmoe 20")
    assert any("for every micro-batch" in note for note in estimate["notes"])


def test_rpc_devices_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    far = out(capsys, "estimate", *MACHINE, "--rpc", "rtx4090", "--network", "10GbE", "--format", "json")
    assert json.loads(far)["inputs"]["devices"] == ["geforce-rtx-4090", "geforce-rtx-3060-12gb"]


def test_a_model_that_does_not_fit_is_told_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(out(capsys, "estimate", *MACHINE, "--format", "json"))
    assert data["memory"]["fits"] is False
    assert any("llmcalc fit --gpu geforce-rtx-3060-12gb --model qwen3-30b-a3b" in note for note in data["notes"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ngl", "many"), "neither a number of layers nor all"),
        (("-ts", "a,b"), "no list of proportions"),
        (("-ot", "xyzzy=CPU"), "matches no tensor"),
        (("--network", "10GbE"), "goes with --rpc"),
        (("--cpu-moe", "-ncmoe", "3"), "contradict"),
    ],
)
def test_bad_options_are_one_sentence(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["estimate", *MACHINE, *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_fit_chooses_the_placement_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", *MACHINE, "-ngl", "3"]) == 2
    assert "chooses the placement itself" in capsys.readouterr().err


def test_json_says_where_everything_lies(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(out(capsys, "estimate", *MACHINE, "-ngl", "20", "-ncmoe", "40", "-nkvo", "--format", "json"))
    placement = data["placement"]
    assert placement["layers"] == [-1] * 29 + [0] * 19
    assert set(placement["caches"]) == {-1}
    assert placement["moved_tensors"]["blk.39.ffn_up_exps.weight"] == -1
    assert placement["flags"] == ["-ngl 20", "--n-cpu-moe 40", "--no-kv-offload"]


def test_explain_shows_every_place_and_what_crosses(capsys: pytest.CaptureFixture[str]) -> None:
    page = out(capsys, "estimate", *MACHINE, "-ncmoe", "20", "--explain")
    assert "in the cache, on AMD Ryzen 5 5600X" in page
    assert "in the cache, on GeForce RTX 3060 12GB" in page
    assert "weights over PCIe 4.0 x16" in page


def test_a_plain_estimate_loads_nothing_of_placement() -> None:
    code = (
        "import sys; from llmcalc.cli import run; run(['estimate', '--gpu', 'rtx3090', '-m', 'llama3-8b', '--format', "
        "'json']); print(*(m for m in sys.modules if m.startswith('llmcalc.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "llmcalc.multi_device" in loaded
    late = ("offload_timing", "placement_settings", "links", "host", "placed_work", "placed_basis", "fit_search")
    assert not loaded & {f"llmcalc.{name}" for name in late}
