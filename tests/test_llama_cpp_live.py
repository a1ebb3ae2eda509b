"""Memory figures against llama.cpp's own report: recorded, and live where llama-fit-params is on the PATH.

The recording (tests/data/memory/recorded_fit_params.txt) is what `report` returned with llama.cpp b11434.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from published_models import published

from llmcalc.kv_cache import check_cache_types
from llmcalc.memory import memory_plan
from llmcalc.placement import on_host
from llmcalc.quantization import weights
from llmcalc.workload import Workload

RECORDING = Path(__file__).parent / "data" / "memory" / "recorded_fit_params.txt"
TOOL = "llama-fit-params"
MIB = 2**20

MODELS = (  # one or more of each kind
    "llama3.2-1b",  # grouped queries, tied embeddings
    "gemma3-4b",  # sliding windows
    "qwen3-30b-a3b",  # mixture of experts
    "gpt-oss-20b",  # mixture of experts with sinks and windows
    "deepseek-v3",  # latent attention
    "qwen3-next-80b-a3b",  # Gated DeltaNet and attention
    "falcon-h1-0.5b",  # Mamba-2 beside attention
    "jamba-reasoning-3b",  # Mamba and attention
    "mamba-130m",  # Mamba alone
    "rwkv7-0.4b",  # RWKV
    "lfm2-350m",  # short convolutions and attention
    "kimi-linear-48b-a3b",  # Kimi delta attention and latent attention
    "olmo2-1b",  # norms after, not before
)
LOADS = {
    "-c 3000": Workload(context=3000),
    "-c 20000 -ub 256 -fa off": Workload(context=20000, ubatch=256, flash_attention=False),
    "-c 12288 -np 3 -ub 768": Workload(context=12288, parallel=3, ubatch=768),
    "-c 40960 -np 4 -ctk q8_0 -ctv q8_0": Workload(
        context=40960, parallel=4, kv_type_k="Q8_0", kv_type_v="Q8_0"
    ),
    "-c 9000 -ctk q5_1 -ctv q5_1 -b 1024 -ub 1024 --swa-full": Workload(
        context=9000, kv_type_k="Q5_1", kv_type_v="Q5_1", batch=1024, ubatch=1024, swa_full=True
    ),
}  # fmt: skip
CASES = [(name, arguments) for name in MODELS for arguments in LOADS]


def planned(name: str, arguments: str) -> str:
    """Our figures as llama-fit-params prints them: whole MiB of model, context and compute."""
    model = published(name)
    check_cache_types(model, LOADS[arguments])
    host = memory_plan(model, weights(model, "Q4_0"), LOADS[arguments], placement=on_host(model)).host
    return f"Host {host.model_bytes // MIB} {host.context_bytes // MIB} {host.compute_bytes // MIB}"


def report(name: str, arguments: str, folder: Path) -> str:
    """What llama-fit-params says about a file of the model."""
    from sparse_gguf import write_sparse

    path = folder / f"{name}.gguf"
    if not path.exists():
        write_sparse(published(name), weights(published(name), "Q4_0"), path)
    flash = [] if "-fa" in arguments else ["-fa", "on"]
    command = [TOOL, "-m", str(path), "--fit-print", "on", "-dev", "none", "--no-repack", *arguments.split(), *flash]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def recording() -> dict[tuple[str, str], str]:
    lines = RECORDING.read_text(encoding="utf-8").splitlines()
    return {(name, arguments): output for name, arguments, output in (line.split(" | ") for line in lines)}


def test_every_case_is_recorded() -> None:
    assert set(recording()) == set(CASES)


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_recorded_reports(name: str, arguments: str) -> None:
    assert planned(name, arguments) == recording()[name, arguments]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.llama_cpp
@pytest.mark.skipif(shutil.which(TOOL) is None, reason=f"{TOOL} is not on the PATH")
@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_live_reports(name: str, arguments: str, folder: Path) -> None:
    assert report(name, arguments, folder) == planned(name, arguments)
