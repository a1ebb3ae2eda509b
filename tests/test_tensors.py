"""The tensor inventory against published parameter counts and llama.cpp's names and shapes."""

from __future__ import annotations

import pytest

from llmcalc.architecture import (
    Attention,
    DeltaNet,
    DenseFfn,
    ExtraTensor,
    LatentAttention,
    Layer,
    Mamba,
    Model,
    MoeFfn,
)
from llmcalc.tensors import active_params, file_params, kept_f32, role, tensors, total_params


def gqa(heads: int, kv_heads: int, dim: int = 128, **options: object) -> Attention:
    return Attention(heads, kv_heads, dim, dim, **options)  # type: ignore[arg-type]


def model(hidden: int, vocab: int, layers: list[Layer], **options: object) -> Model:
    return Model("test", "Test", "llama", vocab, hidden, tuple(layers), **options)  # type: ignore[arg-type]


LLAMA_3_8B = model(4096, 128256, [Layer((gqa(32, 8),), DenseFfn(14336))] * 32)
SANDWICH = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
MLA = LatentAttention(16, 0, 512, 128, 64, 128)

# (model, total, active): published counts of the safetensors files, text part.
PUBLISHED = {
    "llama3-8b": (LLAMA_3_8B, 8_030_261_248, 8_030_261_248),
    "llama2-7b": (model(4096, 32000, [Layer((gqa(32, 32),), DenseFfn(11008))] * 32), 6_738_415_616, 6_738_415_616),
    "qwen2.5-0.5b": (
        model(896, 151936, [Layer((gqa(14, 2, 64, qkv_bias=True),), DenseFfn(4864))] * 24, tied_embeddings=True),
        494_032_768,
        494_032_768,
    ),
    "qwen3-8b": (
        model(4096, 151936, [Layer((gqa(32, 8, qk_norm="head"),), DenseFfn(12288))] * 36),
        8_190_735_360,
        8_190_735_360,
    ),
    "gemma3-1b": (
        model(
            1152,
            262144,
            [Layer((gqa(4, 1, 256, qk_norm="head"),), DenseFfn(6912), norms=SANDWICH)] * 26,
            tied_embeddings=True,
        ),
        999_885_952,
        999_885_952,
    ),
    "mixtral-8x7b": (
        model(4096, 32000, [Layer((gqa(32, 8),), MoeFfn(8, 2, 14336))] * 32),
        46_702_792_704,
        12_879_925_248,
    ),
    "qwen3-30b-a3b": (
        model(2048, 151936, [Layer((gqa(32, 4, qk_norm="head"),), MoeFfn(128, 8, 768))] * 48),
        30_532_122_624,
        3_353_032_704,
    ),
    "olmoe-1b-7b": (
        model(2048, 50304, [Layer((gqa(16, 16, qk_norm="full"),), MoeFfn(64, 8, 1024))] * 16),
        6_919_161_856,
        1_282_017_280,
    ),
    "gpt-oss-20b": (
        model(
            2880,
            201088,
            [
                Layer(
                    (gqa(64, 8, 64, qkv_bias=True, output_bias=True, sinks=True),),
                    MoeFfn(32, 4, 2880, router_bias=True, expert_bias=True),
                )
            ]
            * 24,
        ),
        20_914_757_184,
        4_187_440_704,
    ),
    "deepseek-v2-lite": (
        model(
            2048,
            102400,
            [Layer((MLA,), DenseFfn(10944))] + [Layer((MLA,), MoeFfn(64, 6, 1408, shared_width=2816))] * 26,
        ),
        15_706_484_224,
        2_661_150_208,
    ),
    "mamba-130m": (
        model(
            768,
            50280,
            [Layer((Mamba(1, inner=1536, state=16, conv=4, dt_rank=48),), None, norms=("attn_norm",))] * 24,
            tied_embeddings=True,
        ),
        129_135_360,
        129_135_360,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_equal_published_integers(name: str) -> None:
    built, total, active = PUBLISHED[name]
    assert (total_params(built), active_params(built)) == (total, active)


def test_names_and_shapes_of_a_dense_layer() -> None:
    layer = {tensor.name: tensor.shape for tensor in tensors(LLAMA_3_8B) if tensor.layer == 3}
    assert layer == {
        "blk.3.attn_norm.weight": (4096,),
        "blk.3.ffn_norm.weight": (4096,),
        "blk.3.attn_q.weight": (4096, 4096),
        "blk.3.attn_k.weight": (4096, 1024),
        "blk.3.attn_v.weight": (4096, 1024),
        "blk.3.attn_output.weight": (4096, 4096),
        "blk.3.ffn_gate.weight": (4096, 14336),
        "blk.3.ffn_up.weight": (4096, 14336),
        "blk.3.ffn_down.weight": (14336, 4096),
    }


def test_tied_embeddings_are_stored_once() -> None:
    untied = model(64, 100, [Layer((gqa(2, 1, 32),), DenseFfn(128))])
    tied = model(64, 100, [Layer((gqa(2, 1, 32),), DenseFfn(128))], tied_embeddings=True)
    assert total_params(untied) - total_params(tied) == 64 * 100
    assert "output.weight" not in {tensor.name for tensor in tensors(tied)}


def test_rope_factors_are_in_the_file_but_are_not_parameters() -> None:
    freqs = ExtraTensor("rope_freqs.weight", (64,))
    with_freqs = model(4096, 128256, list(LLAMA_3_8B.layers), extras=(freqs,))
    assert total_params(with_freqs) == total_params(LLAMA_3_8B)
    assert file_params(with_freqs) == file_params(LLAMA_3_8B) + 64


def test_draft_layers_come_last_and_only_when_asked_for() -> None:
    layer = Layer((gqa(2, 1, 32),), DenseFfn(128))
    draft = Layer((gqa(2, 1, 32),), DenseFfn(128), extras=(ExtraTensor("nextn.eh_proj.weight", (128, 64)),))
    built = model(64, 100, [layer, layer], draft_layers=(draft,))
    assert {tensor.layer for tensor in tensors(built)} == {-1, 0, 1}
    assert "blk.2.nextn.eh_proj.weight" in {tensor.name for tensor in tensors(built, drafts=True)}
    assert total_params(built, drafts=True) > total_params(built)


def test_delta_net_layer() -> None:
    mixer = DeltaNet(key_heads=16, value_heads=32, key_dim=128, value_dim=128, conv=4)
    built = model(2048, 1000, [Layer((mixer,), MoeFfn(512, 10, 512, shared_width=512, shared_gate=True))])
    shapes = {tensor.name: tensor.shape for tensor in tensors(built)}
    assert shapes["blk.0.attn_qkv.weight"] == (2048, 8192)
    assert shapes["blk.0.ssm_ba.weight"] == (2048, 64)
    assert shapes["blk.0.ssm_conv1d.weight"] == (4, 8192)
    assert shapes["blk.0.ffn_gate_inp_shexp.weight"] == (2048,)
    assert shapes["blk.0.ffn_down_exps.weight"] == (512, 2048, 512)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token_embd.weight", "token_embedding"),
        ("output.weight", "output"),
        ("output_norm.weight", "norm"),
        ("blk.10.attn_q.weight", "attention"),
        ("blk.10.attn_q.bias", "bias"),
        ("blk.10.attn_q_norm.weight", "norm"),
        ("blk.1.attn_kv_a_mqa.weight", "latent"),
        ("blk.1.attn_kv_a_norm.weight", "norm"),
        ("blk.1.ffn_up.weight", "dense_ffn"),
        ("blk.1.ffn_up_exps.weight", "expert"),
        ("blk.1.ffn_up_exps.bias", "bias"),
        ("blk.1.ffn_up_shexp.weight", "shared_expert"),
        ("blk.1.ffn_gate_inp.weight", "router"),
        ("blk.1.exp_probs_b.bias", "bias"),
        ("blk.1.ssm_in.weight", "recurrent"),
        ("blk.1.ssm_a", "bias"),
        ("blk.1.ssm_norm.weight", "norm"),
        ("blk.1.time_mix_key.weight", "recurrent"),
        ("blk.1.laurel_l.weight", "other"),
        ("blk.1.nextn.eh_proj.weight", "other"),
        ("rope_freqs.weight", "table"),
    ],
)
def test_roles(name: str, expected: str) -> None:
    assert role(name) == expected


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("blk.0.attn_norm.weight", (4096,), True),
        ("blk.0.attn_q.weight", (4096, 4096), False),
        ("blk.0.ffn_gate_inp.weight", (2048, 128), True),
        ("blk.0.attn_q_norm.weight", (128, 64), True),
        ("blk.0.ffn_up_exps.bias", (2880, 32), True),
        ("blk.0.ssm_a", (16, 5120), True),
        ("blk.0.ssm_conv1d.weight", (4, 5120), True),
        ("token_embd.weight", (4096, 32000), False),
    ],
)
def test_kept_f32(name: str, shape: tuple[int, ...], expected: bool) -> None:
    assert kept_f32(name, shape) is expected


def test_expert_tensors_carry_their_count() -> None:
    built = PUBLISHED["mixtral-8x7b"][0]
    experts = {tensor.name: tensor.experts for tensor in tensors(built) if tensor.layer == 0}
    assert experts["blk.0.ffn_down_exps.weight"] == 8
    assert experts["blk.0.attn_q.weight"] == 1
