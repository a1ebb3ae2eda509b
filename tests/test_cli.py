"""The command line as people run it: in a process of its own where start-up counts, else through its one entry."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llmcalc.cli import run
from llmcalc.importers.gguf_writer import write_header
from llmcalc.model_catalog import find_model
from llmcalc.quantization import weights
from llmcalc.tensors import total_params

MAIN_JOB = ["estimate", "--gpu", "rtx4090", "--model", "llama3-8b", "--quant", "q4", "--ctx", "32k"]


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """stdout of a command that must succeed and say nothing on stderr."""
    assert run(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command which must fail with status 2 says on stderr."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("llmcalc: ")
    assert "Traceback" not in lines[0]
    return lines[0]


def test_module_runs_as_a_program() -> None:
    command = [sys.executable, "-c", "from llmcalc.cli import main; main()", *MAIN_JOB, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["schema"] == "llmcalc.estimate/1"


@pytest.mark.parametrize("name", ["estimate", "memory", "hardware", "models"])
def test_every_command_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = answer([name, "--help"], capsys)
    assert "Usage: llmcalc" in text
    if name in ("estimate", "memory"):
        assert f"llmcalc {name} --gpu" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(["--version"], capsys).startswith("llmcalc ")


def test_help_imports_neither_numpy_nor_yaml() -> None:
    code = (
        "import sys, llmcalc.cli; llmcalc.cli.run(['--help']);"
        "print(sorted({'numpy', 'yaml', 'scipy', 'pint', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_estimate_imports_nothing_heavy() -> None:
    code = (
        f"import sys, llmcalc.cli; llmcalc.cli.run({MAIN_JOB!r});"
        "print(sorted({'scipy', 'pint', 'matplotlib', 'gguf', 'hypothesis'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("estimate --model llama3-8b", "no device"),
        ("estimate --gpu rtx4091 --model llama3-8b", "geforce-rtx-4090"),
        ("estimate --gpu rtx4090 --model lama3-8b", "llama3-8b"),
        ("estimate --gpu rtx4090 --model llama3-8b --quant q9", "unknown quantisation 'q9'"),
        ("estimate --gpu rtx4090 --model llama3-8b --quant UD-Q4_K_XL", "give the .gguf file itself"),
        ("estimate --gpu rtx4090 --model llama3-8b --ctx -5", "-5"),
        ("estimate --gpu rtx4090 --model llama3-8b --ctx 0", "ctx: must be at least 1"),
        ("estimate --gpu rtx4090 --model llama3-8b --ctx 32q", "has no unit 'q'"),
        ("estimate --gpu rtx4090 --model llama3-8b --ctx 4k --prompt 4k", "do not fit the 4,096 tokens"),
        ("estimate --gpu rtx4090 --model llama3-8b --parallel 0", "parallel: must be from 1 to 256"),
        ("estimate --gpu rtx4090 --model llama3-8b --memory 24", "needs a unit"),
        ("estimate --gpu rtx4090 --model llama3-8b --bandwidth 24GiB", "has no unit 'GiB'"),
        ("estimate --gpu rtx4090 --model llama3-8b --backend metal", "Metal does not run on GeForce RTX 4090"),
        ("estimate --gpu rtx4090 --model llama3-8b --backend mps", "none of CUDA"),
        ("estimate --gpu rtx4090 --model llama3-8b --kv-type-k q7", "q7"),
        ("estimate --gpu custom --model llama3-8b --memory 24GiB", "bandwidth"),
        ("estimate --gpu rtx4090 --model ./missing.gguf", "missing.gguf"),
        ("estimate --gpu rtx4090 --model ./missing.json", "missing.json"),
        ("estimate --gpu rtx4090 --gpu m2-ultra --model llama3-8b", "--backend"),
        ("estimate --gpu rtx4090", "Missing option '--model'"),
        ("memory --model gemma3-27b --quant q4 --kv-type-v q8_0 --flash-attn off", "flash"),
        ("hardware show rtx4091", "geforce-rtx-4090"),
        ("hardware list --min-memory 24", "needs a unit"),
        ("models show lama3", "llama3"),
        ("frobnicate", "No such command"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert says in complaint(arguments.split(), capsys)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("model.gguf", b"GGUF", "model.gguf"),
        ("model.gguf", b"\x00" * 64, "model.gguf"),
        ("model.gguf", b"", "model.gguf"),
        ("config.json", b"{", "config.json"),
        ("config.json", b"[1, 2]", "config.json"),
        ("config.json", b'{"architectures": ["NobodyForCausalLM"]}', "Nobody"),
        ("config.json", b"[" * 100_000, "config.json"),
    ],
)
def test_unreadable_model_files(
    name: str, content: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert says in complaint(["estimate", "--gpu", "rtx4090", "--model", str(path)], capsys)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("my-gpu: {bandwidth: 500}", "my-gpu"),
        ("my-gpu: [1, 2]", "hardware.yaml:1"),
        ("my-gpu: {bandwith: 500 GB/s}", "bandwith"),
        ("my-gpu: !!python/object/apply:os.system [true]", "hardware.yaml"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n", "hardware.yaml"),
        ("my-gpu: {bandwidth: 500 GB/s", "hardware.yaml"),
    ],
)
def test_unreadable_catalogs(content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hardware.yaml").write_text(content, encoding="utf-8")
    arguments = ["estimate", "--gpu", "my-gpu", "--model", "llama3-8b", "--catalog", str(tmp_path)]
    assert says in complaint(arguments, capsys)


def test_list_and_show_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    devices = json.loads(answer(["hardware", "list", "--json"], capsys))
    assert len(devices) >= 450
    assert all(next(iter(device)) == "id" for device in devices)
    models = json.loads(answer(["models", "list", "--json"], capsys))
    assert len(models) >= 280
    shown = json.loads(answer(["models", "show", "llama3-8b", "--json"], capsys))
    assert shown["total_params"] == shown["active_params"] == 8_030_261_248
    assert shown["kv_bytes_per_token_f16"] == 2 * 32 * 8 * 128 * 2
    assert [layer["attention"] for layer in shown["layers"]] == ["full"] * 32


def test_filters(capsys: pytest.CaptureFixture[str]) -> None:
    apple = json.loads(answer(["hardware", "list", "--vendor", "Apple", "--json"], capsys))
    assert {device["vendor"] for device in apple} == {"apple"}
    large = json.loads(answer(["hardware", "list", "--min-memory", "80GiB", "--json"], capsys))
    assert large
    assert all(device["memory_bytes"] >= 80 * 2**30 for device in large)
    experts = json.loads(answer(["models", "list", "--search", "qwen3", "--moe", "--json"], capsys))
    assert experts
    assert all(entry["active_params"] < entry["total_params"] for entry in experts)


def test_sources_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Sources" not in answer(["hardware", "show", "rtx4090"], capsys)
    assert "Sources" in answer(["hardware", "show", "rtx4090", "--sources"], capsys)
    assert "Sources" in answer(["models", "show", "llama3-8b", "--sources"], capsys)


def test_the_first_bytes_of_a_file_may_come_through_a_pipe(tmp_path: Path) -> None:
    model = find_model("smollm2-135m")
    path = tmp_path / "model.gguf"
    write_header(model, weights(model, "q8_0"), path)
    command = [sys.executable, "-c", "from llmcalc.cli import main; main()", "models", "show", "-", "--json"]
    done = subprocess.run(command, input=path.read_bytes()[:100_000], capture_output=True, check=True)
    assert json.loads(done.stdout)["total_params"] == total_params(model)


NO_FILE_HAS_THIS_NAME = "9" * 5000


@pytest.mark.parametrize(
    "arguments",
    [
        ["estimate", "--gpu", "rtx4090", "--model", NO_FILE_HAS_THIS_NAME],
        ["estimate", "--gpu", "rtx4090", "--model", f"{NO_FILE_HAS_THIS_NAME}.json"],
        ["estimate", "--gpu", "rtx4090", "--model", f"folder/{NO_FILE_HAS_THIS_NAME}.gguf"],
        ["estimate", "--gpu", "rtx4090", "--model", "llama3-8b", "--catalog", NO_FILE_HAS_THIS_NAME],
        ["models", "show", NO_FILE_HAS_THIS_NAME],
        ["validate", NO_FILE_HAS_THIS_NAME],
        ["check", NO_FILE_HAS_THIS_NAME],
        ["benchmark", NO_FILE_HAS_THIS_NAME],
        ["calibrate", NO_FILE_HAS_THIS_NAME],
        ["calibrate", "--run", "llama-bench", "--model", NO_FILE_HAS_THIS_NAME],
        ["catalog", "check", f"{NO_FILE_HAS_THIS_NAME}.yaml"],
        ["plot", "context", "--gpu", "rtx4090", "--model", "llama3-8b", "-o", f"{NO_FILE_HAS_THIS_NAME}.png"],
        ["sweep", "--gpu", "rtx4090", "--model", "llama3-8b", "-o", f"{NO_FILE_HAS_THIS_NAME}.csv"],
    ],
    ids=lambda arguments: " ".join(word[:9] for word in arguments),
)
def test_a_name_too_long_for_any_file_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    complaint(arguments, capsys)
