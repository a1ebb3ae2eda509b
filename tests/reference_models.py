"""Models of published shapes, built by hand, for tests against llama.cpp's own figures."""

from __future__ import annotations

from typing import Any

from llmcalc.architecture import (
    Attention, DeltaNet, DenseFfn, ExtraTensor, Ffn, LatentAttention, Layer, Mamba, Mixer, Model, MoeFfn,
)  # fmt: skip

GEMMA_NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
POST_NORMS = ("attn_norm", "post_attention_norm")


def dense(
    name: str, layers: int, hidden: int, heads: int, kv_heads: int, head: int, width: int, vocab: int, *,
    architecture: str = "llama", tied: bool = False, norms: tuple[str, ...] = ("attn_norm", "ffn_norm"),
    window: int | None = None, global_every: int = 1, first_local: bool = True, freqs: bool = False, ffn: Ffn | None = None,
    **attention: Any,
) -> Model:  # fmt: skip
    """A model of equal layers; with `window`, all but every `global_every`-th layer slide."""

    def mixer(i: int) -> Mixer:
        slides = window is not None and i % global_every < global_every - 1
        return Attention(heads, kv_heads, head, head, window=window if slides else None, **attention)

    return Model(
        id=name, name=name, architecture=architecture, vocab=vocab, hidden=hidden, tied_embeddings=tied,
        layers=tuple(Layer((mixer(i),), ffn or DenseFfn(width), norms) for i in range(layers)),
        extras=(ExtraTensor("rope_freqs.weight", (head // 2,)),) if freqs else (),
    )  # fmt: skip


def deepseek(
    name: str, layers: int, hidden: int, heads: int, query_rank: int, width: int, first_dense: int, moe: MoeFfn, vocab: int,
) -> Model:  # fmt: skip
    mixer = LatentAttention(heads, query_rank, 512, 128, 64, 128)
    ffns = [DenseFfn(width) if i < first_dense else moe for i in range(layers)]
    return Model(name, name, "deepseek2", vocab, hidden, tuple(Layer((mixer,), ffn) for ffn in ffns))


def qwen3_next() -> Model:
    linear, full = DeltaNet(16, 32, 128, 128, 4), Attention(16, 2, 256, 256, qk_norm="head", gate="query")
    ffn = MoeFfn(512, 10, 512, shared_width=512, shared_gate=True)
    layers = tuple(Layer((full if i % 4 == 3 else linear,), ffn, POST_NORMS) for i in range(48))
    return Model("qwen3-next-80b-a3b", "Qwen3-Next-80B-A3B", "qwen3next", 151936, 2048, layers)


def mamba() -> Model:
    layer = Layer((Mamba(1, 5120, 16, 4, dt_rank=160),), None, ("attn_norm",))
    return Model("mamba-2.8b", "Mamba-2.8B", "mamba", 50280, 2560, (layer,) * 64, tied_embeddings=True)


def gemma3(name: str, layers: int, hidden: int, heads: int, kv_heads: int, head: int, width: int, window: int, vocab: int = 262144) -> Model:
    return dense(name, layers, hidden, heads, kv_heads, head, width, vocab, architecture="gemma3", tied=True, norms=GEMMA_NORMS, window=window, global_every=6, qk_norm="head")


def qwen3(name: str, layers: int, hidden: int, heads: int, width: int, tied: bool = False, **more: Any) -> Model:
    return dense(name, layers, hidden, heads, 8, 128, width, 151936, architecture="qwen3", tied=tied, qk_norm="head", **more)


def qwen2(name: str, layers: int, hidden: int, heads: int, kv_heads: int, head: int, width: int, vocab: int = 151936, tied: bool = False) -> Model:
    return dense(name, layers, hidden, heads, kv_heads, head, width, vocab, architecture="qwen2", tied=tied, qkv_bias=True)


def gpt_oss(name: str, layers: int, experts: int) -> Model:
    return dense(
        name, layers, 2880, 64, 8, 64, 2880, 201088, architecture="gpt-oss", norms=POST_NORMS, window=128, global_every=2,
        qkv_bias=True, output_bias=True, sinks=True, ffn=MoeFfn(experts, 4, 2880, router_bias=True, expert_bias=True),
    )  # fmt: skip


MODELS = {model.id: model for model in (
    dense("smollm2-135m", 30, 576, 9, 3, 64, 1536, 49152, tied=True),
    dense("tinyllama-1.1b", 22, 2048, 32, 4, 64, 5632, 32000),
    dense("llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, tied=True, freqs=True),
    dense("llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000),
    dense("llama-3-8b", 32, 4096, 32, 8, 128, 14336, 128256),
    dense("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, freqs=True),
    dense("llama-3-70b", 80, 8192, 64, 8, 128, 28672, 128256),
    dense("mistral-7b", 32, 4096, 32, 8, 128, 14336, 32768),
    dense("mixtral-8x7b", 32, 4096, 32, 8, 128, 0, 32000, ffn=MoeFfn(8, 2, 14336)),
    qwen2("qwen2.5-0.5b", 24, 896, 14, 2, 64, 4864, tied=True),
    qwen2("qwen2.5-1.5b", 28, 1536, 12, 2, 128, 8960, tied=True),
    qwen2("qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064),
    qwen3("qwen3-0.6b", 28, 1024, 16, 3072, tied=True),
    qwen3("qwen3-8b", 36, 4096, 32, 12288),
    dense("qwen3-30b-a3b", 48, 2048, 32, 4, 128, 0, 151936, architecture="qwen3moe", qk_norm="head", ffn=MoeFfn(128, 8, 768)),
    qwen3_next(),
    gemma3("gemma-3-270m", 18, 640, 4, 1, 256, 2048, 512),
    gemma3("gemma-3-1b", 26, 1152, 4, 1, 256, 6912, 512),
    gemma3("gemma-3-4b", 34, 2560, 8, 4, 256, 10240, 1024, 262208),
    gemma3("gemma-3-27b", 62, 5376, 32, 16, 128, 21504, 1024, 262208),
    dense("olmoe-1b-7b", 16, 2048, 16, 16, 128, 0, 50304, architecture="olmoe", qk_norm="full", ffn=MoeFfn(64, 8, 1024)),
    gpt_oss("gpt-oss-20b", 24, 32),
    deepseek("deepseek-v2-lite", 27, 2048, 16, 0, 10944, 1, MoeFfn(64, 6, 1408, shared_width=2816), 102400),
    deepseek("deepseek-v3", 61, 7168, 128, 1536, 18432, 3, MoeFfn(256, 8, 2048, shared_width=2048, selection_bias=True), 129280),
    mamba(),
)}  # fmt: skip
