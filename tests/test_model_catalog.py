"""The model catalog: names, parameter counts against published integers, cache and state sizes, errors of entries."""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path
from typing import get_args

import pytest

from llmcalc.architecture import Attention, CompressedAttention, LatentAttention, Model, RecurrentMixer
from llmcalc.catalog import open_catalog
from llmcalc.conventions import runs_in_llama_cpp
from llmcalc.errors import InputError, UnknownNameError
from llmcalc.kv_cache import state_elements
from llmcalc.model_catalog import ModelInfo, find_info, find_model, list_models
from llmcalc.names import normalise
from llmcalc.tensors import active_params, file_params, tensors, total_params

with (Path(__file__).parent / "data" / "models" / "params.csv").open(newline="") as file:
    ROWS = {row["id"]: row for row in csv.DictReader(file)}

COUNTED = [id for id, row in ROWS.items() if row["total_params"]]
EXACT = [id for id, row in ROWS.items() if row["status"] == "exact"]
CACHED_WITHOUT_COMPRESSION = {"minicpm3-4b"}  # the reference counts its latent; llama.cpp caches keys and values
COPIES = ("nextn.embed_tokens.weight", "nextn.shared_head_head.weight")


@lru_cache
def catalog() -> dict[str, tuple[ModelInfo, Model]]:
    return {info.id: (info, model) for info, model in list_models()}


def model(id: str) -> Model:
    return catalog()[id][1]


def draft_params(model: Model, with_copies: bool) -> int:
    drafts = [tensor for tensor in tensors(model, drafts=True) if tensor.layer >= model.n_layers]
    return sum(tensor.elements for tensor in drafts if with_copies or not tensor.name.endswith(COPIES))


def test_every_reference_model_is_there() -> None:
    assert len(ROWS) >= 312
    assert set(ROWS) <= set(catalog())


@pytest.mark.parametrize("id", COUNTED)
def test_counts(id: str) -> None:
    row, built = ROWS[id], model(id)
    assert total_params(built) == int(row["total_params"])
    assert active_params(built) == int(row["active_params"])
    assert draft_params(built, with_copies=False) == int(row["draft_params"])


@pytest.mark.parametrize("id", EXACT)
def test_checkpoint_counts_equal_the_published_integers(id: str) -> None:
    row, built = ROWS[id], model(id)
    kind, expected = row["checkpoint_kind"], int(row["checkpoint_params"])
    assert catalog()[id][0].published_params == expected
    count = total_params(built)
    if "tied head stored twice" in kind:
        count += built.hidden * built.vocab
    if "MTP" in kind:
        count += draft_params(built, with_copies="repeated" in kind)
    if "buffers" in kind:
        count += attention_buffers(built)
    assert count == expected


def attention_buffers(model: Model) -> int:
    """Causal masks and, for GPT-NeoX, inverse frequencies of the rotated quarter of a head, in every layer."""
    context, mixer = model.max_context, model.layers[0].mixers[0]
    assert context is not None and isinstance(mixer, Attention)
    rotary = mixer.key_dim // 8 if model.architecture == "gptneox" else 0
    return model.n_layers * (context**2 + rotary)


def test_a_model_without_a_reference_count_is_within_its_vision_tower_of_the_published_one() -> None:
    info, built = catalog()["kimi-k3"]
    assert info.published_params is not None
    assert 0 < info.published_params - total_params(built) < 1e9


def cache_elements(model: Model) -> tuple[int, int]:
    """Elements cached per token in layers that attend to all positions, and in layers with a window."""
    full = window = 0
    for mixer in (mixer for layer in model.layers for mixer in layer.mixers):
        if isinstance(mixer, Attention) and not mixer.shares_cache:
            own = mixer.kv_heads * (mixer.key_dim + mixer.value_dim)
            own += mixer.indexer.head_dim if mixer.indexer else 0
            full, window = (full, window + own) if mixer.window else (full + own, window)
        elif isinstance(mixer, LatentAttention):
            full += mixer.kv_rank + mixer.rope_dim
            full += mixer.indexer.head_dim if mixer.indexer and mixer.indexer.owns_weights else 0
        elif isinstance(mixer, CompressedAttention):
            window += mixer.head_dim
    return full, window


@pytest.mark.parametrize("id", COUNTED)
def test_cache_and_state_sizes(id: str) -> None:
    row, built = ROWS[id], model(id)
    expected = (int(row["kv_elements_full"]), int(row["kv_elements_window"]))
    assert cache_elements(built) == expected
    recurrent = [
        mixer for layer in built.layers for mixer in layer.mixers if isinstance(mixer, get_args(RecurrentMixer))
    ]
    state = sum(state_elements(mixer, built.hidden) for mixer in recurrent)
    assert state == int(row["state_elements"]) + int(row["conv_state_elements"])


def test_uncompressed_latent_cache() -> None:
    for id in CACHED_WITHOUT_COMPRESSION:
        mixers = [mixer for layer in model(id).layers for mixer in layer.mixers]
        assert all(isinstance(mixer, LatentAttention) and not mixer.absorbed for mixer in mixers)


@pytest.mark.parametrize(
    ("id", "n_params", "drafts"),
    [  # what llama-bench prints as n_params for files of these models
        ("llama3.1-8b", 8030261312, False),
        ("llama3.2-1b", 1235814432, False),
        ("llama4-scout", 107769861184, False),
        ("phi3.5-mini", 3821079648, False),
        ("gemma4-26b-a4b", 25233142046, False),
        ("gemma4-e4b", 7518069290, False),
        ("deepseek-v4-flash", 284334567511, False),
        ("gpt-oss-120b", 116829156672, False),
        ("hunyuan-a13b", 80393183232, False),
        ("dots.llm1", 142774381696, False),
        ("qwen3.5-27b", 27320697856, True),
        ("qwen3.5-35b-a3b", 35505251456, True),
        ("qwen3.5-122b-a10b", 124635206144, True),
    ],
)
def test_file_counts_equal_llama_bench(id: str, n_params: int, drafts: bool) -> None:
    assert file_params(model(id), drafts) == n_params


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("llama3-8b", "llama3-8b"),
        ("Meta-Llama-3-8B-Instruct", "llama3-8b"),
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("qwen3-30b-a3b", "qwen3-30b-a3b"),
        ("Qwen3 30B A3B", "qwen3-30b-a3b"),
        ("qwen3moe 30B.A3B", "qwen3-30b-a3b"),
        ("gpt-oss-20b", "gpt-oss-20b"),
        ("llama-2-7b-chat", "llama2-7b"),
        ("mixtral-8x7b-instruct-v0.1", "mixtral-8x7b"),
        ("deepseek-v3", "deepseek-v3"),
        ("gemma-3-27b-it", "gemma3-27b"),
        ("phi-4", "phi-4"),
        ("unsloth/gpt-oss-120b-GGUF", "gpt-oss-120b"),
        ("Qwen3-8B-Q4_K_M.gguf", "qwen3-8b"),
        ("bartowski/Llama-3.2-3B-Instruct-GGUF", "llama3.2-3b"),
    ],
)
def test_names_people_type(name: str, id: str) -> None:
    assert find_model(name).id == id


def test_every_name_finds_its_own_entry_and_none_is_claimed_twice() -> None:
    opened, claims = open_catalog("models"), dict[str, str]()
    for info, _ in catalog().values():
        for name in (info.id, info.name, *info.aliases, *info.hugging_face):
            assert opened.find(name).id == info.id, name
            assert claims.setdefault(normalise(name), info.id) == info.id, name


def test_an_ambiguous_name_lists_what_it_may_mean() -> None:
    with pytest.raises(UnknownNameError) as error:
        find_model("mistral-7b")
    assert set(error.value.candidates) == {"mistral-7b-v0.1", "mistral-7b-v0.2", "mistral-7b-v0.3"}


def test_models_that_llama_cpp_cannot_run_are_told_apart() -> None:
    unsupported = {model.architecture for _, model in catalog().values() if not runs_in_llama_cpp(model.architecture)}
    assert unsupported == {"gptj", "opt"}
    assert not runs_in_llama_cpp("no-such-architecture")


def test_info_of_one_model() -> None:
    info = find_info("qwen3 0.6b")
    assert (info.id, info.architecture, info.published_params) == ("qwen3-0.6b", "qwen3", 751632384)
    assert info.hugging_face == ("Qwen/Qwen3-0.6B",)
    assert info.published_active_params is None


def test_a_user_entry_extends_a_built_in_one(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text("half:\n  extends: llama3-8b\n  layers: 16\n")
    assert find_model("half", [tmp_path]).n_layers == 16
    assert find_model("half", [tmp_path]).hidden == model("llama3-8b").hidden


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("heds: 8", "unknown field 'heds'; did you mean 'heads'?"),
        ("layers: -1", "layers: -1 is not between 1 and 4096"),
        ("hidden: lots", "hidden: expected a whole number, got 'lots'"),
        ("architecture: lama", "unknown architecture 'lama' \\(did you mean"),
        ("pattern: XY", "'XY' is not a pattern of the letters"),
        ("ffn: [1, 2]", "the list must have one value for each of the 32 layers"),
        ("experts: {count: 8, used: 9, ffn: 4}", "experts: used: 9 is not between 1 and 8"),
        ("experts: 8", "experts: expected a mapping"),
        ("kv_heads: 5", "32 heads cannot share 5 key/value heads evenly"),
        ("tied_embeddings: 1", "tied_embeddings: expected true or false, got '1'"),
        ("pattern: M", "mamba: is missing, and the layers of this llama model need it"),
    ],
)
def test_wrong_entries_are_named_with_file_entry_and_field(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "models.yaml").write_text(f"mine:\n  extends: llama3-8b\n  {line}\n")
    with pytest.raises(InputError, match=message) as error:
        find_model("mine", [tmp_path])
    assert "models.yaml" in str(error.value) and "mine" in str(error.value)
