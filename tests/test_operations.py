"""Operations: FLOPs and bytes against closed formulas, and what broadcasting and grouping must not change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.architecture import Attention, Model
from llmcalc.cache_reads import CacheTypes, Phase
from llmcalc.inventory import Inventory, inventory
from llmcalc.model_catalog import find_model
from llmcalc.operations import (
    Operation,
    PhaseOperations,
    decode_operations,
    distinct_experts,
    prefill_operations,
)
from llmcalc.quantization import weights
from llmcalc.run_machine import Conditions
from llmcalc.tensors import active_params, total_params

DENSE = ["llama3-8b", "llama2-7b", "qwen3-8b", "mistral-nemo-12b", "phi-4"]


def model_and_file(name: str, file_type: str = "F16") -> tuple[Model, Inventory]:
    model = find_model(name)
    return model, inventory(model, weights(model, file_type))


def of_kind(phase: PhaseOperations, kind: str) -> list[Operation]:
    return [operation for operation in phase.operations if operation.kind == kind]


def attention_flops(model: Model, positions: float) -> float:
    """4 FLOP for each query head, value of a head and attended position."""
    mixers = [mixer for layer in model.layers for mixer in layer.mixers]
    assert all(isinstance(mixer, Attention) for mixer in mixers)
    return sum(2.0 * a.heads * (a.key_dim + a.value_dim) for a in mixers if isinstance(a, Attention)) * positions


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("prompt", [512, 4096])
def test_dense_prefill_is_two_flop_a_parameter_and_token_plus_attention(name: str, prompt: int) -> None:
    model, file = model_and_file(name)
    vocabulary = model.vocab * model.hidden
    body = total_params(model) - vocabulary * (1 if model.tied_embeddings else 2)
    expected = 2 * body * prompt + attention_flops(model, prompt * (prompt + 1) / 2) + 2 * vocabulary
    assert prefill_operations(model, file, prompt=prompt).flops == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b"])
def test_moe_decode_multiplies_the_active_parameters(name: str) -> None:
    model, file = model_and_file(name, "Q8_0" if name != "gpt-oss-20b" else "MXFP4_MOE")
    lookup = model.vocab * model.hidden * (0 if model.tied_embeddings else 1)
    step = decode_operations(model, file, occupied=256)
    products = sum(op.flops for op in step.operations if op.kind in ("dense", "experts", "output"))
    assert products == pytest.approx(2 * (active_params(model) - lookup), rel=0.01)


def test_decode_reads_the_weights_once_and_the_occupied_cache() -> None:
    model, file = model_and_file("llama3-8b", "Q8_0")
    embedding = model.vocab * model.hidden * 34 / 32
    step = decode_operations(model, file, occupied=4096)
    per_token = 32 * 8 * 128 * 2 * 2
    read = sum(op.weight_bytes + op.kv_read_bytes for op in step.operations)
    assert read == pytest.approx(file.file_bytes - embedding + 4096 * per_token, rel=1e-3)
    assert sum(op.kv_written_bytes for op in step.operations) == per_token


@pytest.mark.parametrize(("occupied", "cells"), [(1, 256), (256, 256), (257, 512), (4000, 4096)])
def test_attention_reads_cells_in_steps_of_256(occupied: int, cells: int) -> None:
    model, file = model_and_file("llama3-8b")
    (attention,) = of_kind(decode_operations(model, file, occupied=occupied), "attention")
    assert attention.kv_read_bytes == cells * 32 * 8 * 128 * 2 * 2


def test_window_layers_read_no_more_than_their_window() -> None:
    model, file = model_and_file("gemma3-12b")
    short = of_kind(decode_operations(model, file, occupied=1024), "attention")
    long = of_kind(decode_operations(model, file, occupied=65536), "attention")
    windowed = {op.name: op for op in long if "1024" in op.name}
    (name,) = windowed
    assert windowed[name].kv_read_bytes == next(op.kv_read_bytes for op in short if op.name == name)
    full_short, full_long = (next(op for op in ops if op.name == "attention") for ops in (short, long))
    assert full_long.kv_read_bytes == 64 * full_short.kv_read_bytes


def test_mla_reads_one_latent_a_position() -> None:
    model, file = model_and_file("deepseek-r1", "Q4_K_M")
    (attention,) = of_kind(decode_operations(model, file, occupied=1024), "attention")
    assert attention.kv_read_bytes == 61 * 576 * 2 * 1024  # 70 272 bytes a token, facts of DeepSeek V3
    assert attention.wide_heads


def sparse_attention(model: str, cache: CacheTypes, occupied: float, phase: str = "decode") -> float:
    """Entries that each query head scores in the layers whose indexer selects some."""
    found, file = model_and_file(model, "Q4_K_M")
    if phase == "decode":
        operations = decode_operations(found, file, occupied=occupied, cache=cache)
    else:
        operations = prefill_operations(found, file, prompt=256, cached=occupied, cache=cache)
    (selecting,) = [one for one in of_kind(operations, "attention") if one.scores and " of 2048" in one.name]
    heads = sum(getattr(mixer, "heads", 0) for layer in found.layers for mixer in layer.mixers)
    return float(np.asarray(selecting.scores)) / heads / float(np.asarray(operations.tokens))


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize(
    ("gathers", "occupied", "entries"),
    [
        (("decode", "prefill"), 65536.0, 2048.0),
        (("decode", "prefill"), 2048.0, 2048.0),
        (("decode", "prefill"), 3840.0, 3840.0),  # kernels gather from 4,096 entries on
        ((), 65536.0, 65536.0),  # the others are masked, and read all the same
    ],
)
def test_selected_entries_are_gathered_or_all_others_masked(
    phase: str, gathers: tuple[Phase, ...], occupied: float, entries: float
) -> None:
    found = sparse_attention("deepseek-v3.2", CacheTypes(gathers=gathers), occupied, phase)
    assert found == pytest.approx(entries, rel=0.07)  # a prompt's own tokens see one another


def test_sparse_attention_broadcasts() -> None:
    model, file = model_and_file("deepseek-v4-flash", "Q4_K_M")
    depths = np.array([1024.0, 16383.0, 16384.0, 32768.0, 131072.0])
    many = decode_operations(model, file, occupied=depths)
    for number, depth in enumerate(depths):
        one = decode_operations(model, file, occupied=float(depth))
        for all_depths, single in zip(many.operations, one.operations, strict=True):
            for field in ("flops", "kv_read_bytes", "scores", "unmasked", "head_bytes"):
                given_array, given_number = getattr(all_depths, field), getattr(single, field)
                assert np.broadcast_to(given_array, depths.shape)[number] == pytest.approx(given_number)


@pytest.mark.parametrize(
    ("backend", "era", "gathers"),
    [
        ("CUDA", None, ("decode", "prefill")),
        ("CUDA", "2026H2", ()),
        ("Metal", None, ("decode",)),
        ("ROCm", None, ()),
        ("CPU", None, ()),
    ],
)
def test_kernels_that_gather(backend: str, era: str | None, gathers: tuple[str, ...]) -> None:
    assert Conditions(backend, era=era).cache_types.gathers == gathers


def test_a_graph_that_gathers_by_itself_needs_no_kernel_for_it() -> None:
    """MiniMax M3 gathers blocks for the one token of a decode step, and masks for a prompt."""
    none = CacheTypes(gathers=())
    model, file = model_and_file("minimax-m3", "Q4_K_M")
    steps = [decode_operations(model, file, occupied=depth, cache=none) for depth in (32768.0, 65536.0)]
    prompts = [prefill_operations(model, file, prompt=512, cached=depth, cache=none) for depth in (32768.0, 65536.0)]

    def scored(phase: PhaseOperations) -> float:
        return sum(float(np.asarray(one.scores)) for one in of_kind(phase, "attention") if " of 2048" in one.name)

    assert scored(steps[1]) == scored(steps[0]) > 0
    assert scored(prompts[1]) == pytest.approx(2 * scored(prompts[0]), rel=0.02)


def test_a_quantised_cache_is_read_at_its_own_size() -> None:
    model, file = model_and_file("llama3-8b")
    (half,) = of_kind(decode_operations(model, file, occupied=1024), "attention")
    (eighth,) = of_kind(decode_operations(model, file, occupied=1024, cache=CacheTypes("Q8_0", "Q8_0")), "attention")
    assert eighth.kv_read_bytes / half.kv_read_bytes == pytest.approx(34 / 64)


def test_without_flash_attention_the_scores_cross_memory() -> None:
    model, file = model_and_file("llama3-8b")
    fused, plain = (
        of_kind(prefill_operations(model, file, prompt=512, cache=CacheTypes(flash_attention=flash)), "attention")[0]
        for flash in (True, False)
    )
    assert fused.activation_bytes == 0
    assert plain.activation_bytes == pytest.approx(4 * 4 * 32 * 32 * 512 * 513 / 2)
    assert plain.flops == fused.flops


def test_mtp_blocks_count_in_the_size_but_are_not_read() -> None:
    model = find_model("glm-4.5-air")
    assert model.draft_layers
    with_drafts, without = (inventory(model, weights(model, "Q8_0", drafts=drafts)) for drafts in (True, False))
    assert with_drafts.file_bytes > without.file_bytes
    read = [decode_operations(model, file, occupied=256).required_bytes for file in (with_drafts, without)]
    assert read[0] == read[1]


def test_stretching_a_mixture_stretches_what_is_read_of_it() -> None:
    _, file = model_and_file("llama3-8b", "Q4_K_M")
    larger = file.scaled(1.1 * file.file_bytes)
    before, after = (sum(group.bytes for group in one.matrices) for one in (file, larger))
    assert after == pytest.approx(1.1 * before)
    assert larger.file_bytes == pytest.approx(1.1 * file.file_bytes)


def test_every_micro_batch_reads_all_weights() -> None:
    model, file = model_and_file("llama3-8b", "Q4_K_M")
    one, four = (prefill_operations(model, file, prompt=2048, ubatch=ubatch) for ubatch in (2048, 512))
    assert (one.passes, four.passes) == (1, 4)
    dense_one, dense_four = (sum(op.weight_bytes for op in of_kind(phase, "dense")) for phase in (one, four))
    assert dense_four == 4 * dense_one
    assert four.launches == 4 * one.launches
    assert four.flops == pytest.approx(one.flops)


def test_only_the_last_token_of_a_prompt_needs_the_output_head() -> None:
    model, file = model_and_file("llama3-8b")
    (head,) = of_kind(prefill_operations(model, file, prompt=512), "output")
    assert head.flops == 2 * model.vocab * model.hidden
    (head,) = of_kind(decode_operations(model, file, occupied=256, parallel=8), "output")
    assert head.flops == 8 * 2 * model.vocab * model.hidden


@given(first=st.integers(1, 4000), second=st.integers(1, 4000))
def test_a_prompt_in_two_parts_attends_the_same_positions(first: int, second: int) -> None:
    model, file = model_and_file("llama3-8b")
    (whole,) = of_kind(prefill_operations(model, file, prompt=first + second), "attention")
    (start,) = of_kind(prefill_operations(model, file, prompt=first), "attention")
    (rest,) = of_kind(prefill_operations(model, file, prompt=second, cached=first), "attention")
    assert whole.flops == pytest.approx(start.flops + rest.flops, rel=1e-9)


@given(start=st.integers(0, 3000), prompt=st.integers(1, 3000))
def test_positions_in_a_window_are_counted_one_by_one(start: int, prompt: int) -> None:
    model, file = model_and_file("gemma3-1b")
    attention = of_kind(prefill_operations(model, file, prompt=prompt, cached=start), "attention")
    windowed = next(op for op in attention if "512" in op.name)
    layers = sum(layer.mixers[0].window == 512 for layer in model.layers)  # type: ignore[union-attr]
    positions = sum(min(512, start + i + 1) for i in range(prompt))
    assert windowed.flops == pytest.approx(layers * 2 * 4 * (256 + 256) * positions)


@pytest.mark.parametrize(
    ("experts", "used", "tokens", "expected"),
    [(128, 8, 1, 8.0), (8, 2, 1, 2.0), (8, 2, 2, 8 * (1 - 0.75**2)), (64, 8, 10_000, 64.0), (4, 4, 3, 4.0)],
)
def test_distinct_experts(experts: int, used: int, tokens: int, expected: float) -> None:
    assert distinct_experts(experts, used, tokens) == pytest.approx(expected, rel=1e-6)


@given(experts=st.integers(2, 512), share=st.floats(0.01, 1.0), tokens=st.integers(1, 4096))
def test_distinct_experts_lie_between_one_tokens_and_all(experts: int, share: float, tokens: int) -> None:
    used = max(1, int(share * experts))
    distinct = distinct_experts(experts, used, tokens)
    assert used - 1e-6 <= distinct <= min(experts, used * tokens) + 1e-6


def test_a_batch_reads_distinct_experts_and_shares_the_rest() -> None:
    model, file = model_and_file("qwen3-30b-a3b", "Q8_0")
    one, many = (decode_operations(model, file, occupied=256, parallel=b) for b in (1, 16))
    dense = [sum(op.weight_bytes for op in of_kind(phase, "dense")) for phase in (one, many)]
    assert dense[0] == dense[1]
    expert_bytes = [sum(op.weight_bytes for op in of_kind(phase, "experts")) for phase in (one, many)]
    assert expert_bytes[1] / expert_bytes[0] == pytest.approx(128 * (1 - (1 - 8 / 128) ** 16) / 8)
    flops = [sum(op.flops for op in of_kind(phase, "experts")) for phase in (one, many)]
    assert flops[1] == pytest.approx(16 * flops[0])


def test_recurrent_layers_move_their_state_whatever_the_depth() -> None:
    model, file = model_and_file("qwen3-next-80b-a3b", "Q4_K_M")
    near, far = (of_kind(decode_operations(model, file, occupied=n), "scan")[0] for n in (256, 100_000))
    assert vars(near) == vars(far)
    assert near.kv_read_bytes == near.kv_written_bytes == 36 * (524_288 + 24_576) * 4


def test_the_list_is_as_short_for_126_layers_as_for_16() -> None:
    small, large = (model_and_file(name, "Q8_0") for name in ("llama3.2-1b", "llama3.1-405b"))
    lengths = {len(decode_operations(*one, occupied=256).operations) for one in (small, large)}
    assert max(lengths) <= 5


@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-30b-a3b", "gemma3-12b", "qwen3-next-80b-a3b", "deepseek-r1"])
def test_arrays_give_what_scalars_give(name: str) -> None:
    model, file = model_and_file(name, "Q4_K_M")
    occupied, parallel = np.array([1, 300, 5000, 70_000]), np.array([1, 2, 8, 64])
    together = decode_operations(model, file, occupied=occupied, parallel=parallel)
    prompts, cached = np.array([1, 100, 513, 40_000]), np.array([0, 7, 4096, 0])
    prefill = prefill_operations(model, file, prompt=prompts, cached=cached)
    for i in range(4):
        step = decode_operations(model, file, occupied=int(occupied[i]), parallel=int(parallel[i]))
        assert together.flops[i] == pytest.approx(step.flops)  # type: ignore[index]
        assert together.required_bytes[i] == pytest.approx(step.required_bytes)  # type: ignore[index]
        alone = prefill_operations(model, file, prompt=int(prompts[i]), cached=int(cached[i]))
        assert prefill.flops[i] == pytest.approx(alone.flops)  # type: ignore[index]
        assert prefill.required_bytes[i] == pytest.approx(alone.required_bytes)  # type: ignore[index]
