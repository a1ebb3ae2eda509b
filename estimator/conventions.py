"""What each architecture implies: the shape rules that a model's own figures do not repeat.

One entry per GGUF architecture name, read from llama.cpp b11434: tensor lists and hyper-parameters of src/models, and
the converters. The catalog, the Hugging Face importer and the GGUF importer all start from these.

A pattern has one letter a layer and is repeated to the number of layers:

    F  attention to all positions        M  Mamba state space layer
    S  attention to a sliding window     P  Mamba and attention side by side
    L  linear attention                  C  gated short convolution
    R  RWKV time mixing                  N  no mixer, feed-forward only
    D  dense feed-forward block alone    E  mixture-of-experts block alone
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from .errors import InputError
from .frozen_dataclass import dataclass

Pattern = str
SANDWICH: Final = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
POST_ATTENTION: Final = ("attn_norm", "post_attention_norm")  # the second one stands before the feed-forward block
POST_ONLY: Final = ("post_attention_norm", "post_ffw_norm")


@dataclass(frozen=True)
class Convention:
    """The rules of one architecture; where some of its models break one, a field of the model overrides it."""

    pattern: Pattern = "F"
    window: int | None = None  # where the model itself does not give one
    chunked: bool = False
    norms: tuple[str, ...] = ("attn_norm", "ffn_norm")
    norm_bias: bool = False
    final_norm: bool = True
    embedding_norm: bool = False  # token_embd_norm, with bias
    tied_embeddings: bool = False
    head_bias: bool = False  # bias of the output matrix
    learned_positions: int | None = None  # rows of the position table beyond the context length
    fused_qkv: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "heads", "full"] = "none"
    gate: Literal["none", "query", "head", "element"] = "none"
    sinks: Literal["none", "all", "window"] = "none"
    latent_absorbed: bool = True
    latent_gate: bool = False
    gated: bool = True
    fused_gate_up: bool = False
    ffn_bias: bool = False
    activation_scalars: int = 0
    selection_bias: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    fused_experts: bool = False
    latent_expert_norm: bool = False
    dense_beside_experts: bool = False
    single_part_blocks: bool = False  # a layer is one mixer or one feed-forward block
    mamba_version: Literal[1, 2] = 2
    mamba_inner_norms: bool = False
    mamba_gated_norm: bool = True
    fused_beta_alpha: bool = True
    full_rank_gate: bool = False
    draft_dense: bool = False  # the MTP block is dense though the model has experts
    draft_sliding: bool = False  # the MTP block attends to the window
    draft_norms: tuple[str, ...] | None = None
    draft_embeddings: bool = False  # checkpoints repeat the embedding in the MTP block
    draft_head: bool = False  # and the output matrix
    drafts_converted: bool = True  # the converter puts MTP blocks into the file unless told not to
    llama_cpp: bool = True  # False: llama.cpp has no converter for it and cannot run it


_PLAIN: Final = Convention()
_BIASED: Final = Convention(norm_bias=True, qkv_bias=True, output_bias=True, ffn_bias=True, gated=False)
_QWEN_HYBRID: Final = Convention(
    pattern="LLLF", norms=POST_ATTENTION, qk_norm="head", gate="query", shared_gate=True, fused_beta_alpha=False
)
_SIGMOID_MOE: Final = Convention(selection_bias=True)
_GEMMA: Final = Convention(norms=SANDWICH, tied_embeddings=True)
_DRAFT_COPIES: Final = Convention(draft_embeddings=True, draft_head=True)
_NEMOTRON_H: Final = Convention(
    pattern="MDMDF", norms=("attn_norm",), gated=False, single_part_blocks=True, draft_norms=POST_ATTENTION
)

CONVENTIONS: Final[dict[str, Convention]] = {
    "afmoe": Convention(pattern="SSSF", norms=SANDWICH, qk_norm="head", gate="element", selection_bias=True),
    "apertus": Convention(qk_norm="head", gated=False, activation_scalars=2),
    "arcee": Convention(gated=False),
    "arctic": Convention(norms=("attn_norm", "ffn_norm", "ffn_norm_exps"), dense_beside_experts=True),
    "baichuan": _PLAIN,
    "bailingmoe": _PLAIN,
    "bailingmoe2": Convention(fused_qkv=True, qk_norm="head", selection_bias=True),
    "bloom": replace(_BIASED, fused_qkv=True, embedding_norm=True, tied_embeddings=True),
    "chatglm": Convention(fused_qkv=True, qkv_bias=True, fused_gate_up=True),
    "cohere2": Convention(pattern="SSSF", norms=("attn_norm",), tied_embeddings=True),
    "command-r": Convention(norms=("attn_norm",), tied_embeddings=True),
    "dbrx": Convention(norms=("attn_norm", "attn_output_norm"), fused_qkv=True),
    "deci": _PLAIN,
    "deepseek": _PLAIN,
    "deepseek2": replace(_DRAFT_COPIES, drafts_converted=False),  # V2 selects experts without a bias, V3 with one
    "deepseek32": replace(_DRAFT_COPIES, selection_bias=True),
    "deepseek4": Convention(selection_bias=True, drafts_converted=False),
    "dots1": Convention(qk_norm="head", selection_bias=True),
    "ernie4_5": _PLAIN,
    "ernie4_5-moe": Convention(selection_bias=True, draft_dense=True, drafts_converted=False),
    "exaone": _PLAIN,
    "exaone-moe": Convention(pattern="SSSF", qk_norm="head", selection_bias=True, draft_dense=True),
    "exaone4": Convention(pattern="SSSF", norms=POST_ONLY, qk_norm="head"),
    "falcon": Convention(
        norms=("attn_norm", "attn_norm_2"), norm_bias=True, fused_qkv=True, gated=False, tied_embeddings=True
    ),
    "falcon-h1": Convention(pattern="P", norms=("attn_norm",)),  # its ffn_norm has a name without ".weight"
    "gemma": Convention(tied_embeddings=True),
    "gemma2": replace(_GEMMA, pattern="SF", window=4096),
    "gemma3": replace(_GEMMA, pattern="SSSSSF", qk_norm="head"),
    "gemma3n": replace(_GEMMA, pattern="SSSSF", qk_norm="head"),
    "gemma4": replace(_GEMMA, pattern="SSSSSF", qk_norm="head", fused_experts=True, dense_beside_experts=True),
    "glm-dsa": _SIGMOID_MOE,
    "glm4": Convention(norms=SANDWICH, qkv_bias=True, fused_gate_up=True),
    "glm4moe": replace(_DRAFT_COPIES, norms=POST_ATTENTION, qkv_bias=True, selection_bias=True),
    "gpt-oss": Convention(
        pattern="SF",
        norms=POST_ATTENTION,
        qkv_bias=True,
        output_bias=True,
        sinks="all",
        router_bias=True,
        expert_bias=True,
    ),
    "gpt2": replace(_BIASED, fused_qkv=True, learned_positions=0, tied_embeddings=True),
    "gptneox": replace(_BIASED, fused_qkv=True),
    "granite": _PLAIN,
    "granitehybrid": Convention(pattern="MMMMMF"),
    "granitemoe": _PLAIN,
    "grok": Convention(norms=("attn_norm", "attn_output_norm", "ffn_norm", "layer_output_norm"), tied_embeddings=True),
    "hunyuan-dense": Convention(qk_norm="head"),
    "hunyuan-moe": Convention(qk_norm="head"),
    "internlm2": _PLAIN,
    "jamba": Convention(pattern="MMMMFMMM", mamba_version=1, mamba_inner_norms=True),
    "kimi-k3": Convention(
        pattern="LLLF", selection_bias=True, latent_gate=True, latent_expert_norm=True, full_rank_gate=True
    ),
    "kimi-linear": Convention(pattern="LLLF", selection_bias=True),
    "lfm2": Convention(pattern="CCF", qk_norm="head", tied_embeddings=True),
    "lfm2moe": Convention(pattern="CCF", qk_norm="head", tied_embeddings=True, selection_bias=True),
    "llama": _PLAIN,
    "llama4": Convention(pattern="SSSF", window=8192, chunked=True),
    "mamba": Convention(pattern="M", norms=("attn_norm",), mamba_version=1),
    "mamba2": Convention(pattern="M", norms=("attn_norm",)),
    "mimo2": Convention(pattern="FSSSSS", sinks="window", selection_bias=True, draft_dense=True),
    "minicpm": _PLAIN,
    "minicpm3": Convention(latent_absorbed=False, tied_embeddings=True),
    "minimax-01": Convention(pattern="LLLLLLLF"),
    "minimax-m2": Convention(qk_norm="full", selection_bias=True),
    "minimax-m3": Convention(qk_norm="head", selection_bias=True),
    "mistral3": _PLAIN,
    "mistral4": Convention(fused_experts=True),
    "nemotron": Convention(norm_bias=True, gated=False),
    "nemotron_h": _NEMOTRON_H,
    "nemotron_h_moe": replace(_NEMOTRON_H, pattern="MEMEF", selection_bias=True),
    "olmo": Convention(norms=(), final_norm=False),
    "olmo2": Convention(pattern="SSSF", norms=POST_ONLY, qk_norm="full"),  # OLMo 2 has no window, OLMo 3 has
    "olmoe": Convention(qk_norm="full"),
    "phi2": replace(_BIASED, norms=("attn_norm",), head_bias=True),
    "phi3": Convention(fused_qkv=True, fused_gate_up=True),  # the window of its config is not applied
    "phimoe": Convention(norm_bias=True, qkv_bias=True, output_bias=True, head_bias=True),
    "qwen2": Convention(qkv_bias=True),
    "qwen2moe": Convention(qkv_bias=True, shared_gate=True),
    "qwen3": Convention(qk_norm="head"),
    "qwen35": _QWEN_HYBRID,
    "qwen35moe": _QWEN_HYBRID,
    "qwen3moe": Convention(qk_norm="head"),
    # Published files of Qwen3-Next are older than the conversion of its MTP block.
    "qwen3next": replace(_QWEN_HYBRID, fused_beta_alpha=True, drafts_converted=False),
    "rwkv7": Convention(pattern="R", norms=("attn_norm", "attn_norm_2"), norm_bias=True, embedding_norm=True),
    "seed_oss": Convention(norms=POST_ATTENTION, qkv_bias=True),
    "smollm3": _PLAIN,
    "stablelm": Convention(norm_bias=True),
    "starcoder": replace(_BIASED, fused_qkv=True, learned_positions=0, tied_embeddings=True),
    "starcoder2": replace(_BIASED, tied_embeddings=True),
    "step35": Convention(
        pattern="FSSS",
        qk_norm="head",
        gate="head",
        selection_bias=True,
        draft_dense=True,
        draft_sliding=True,
        draft_head=True,
    ),
    # Not in llama.cpp: counted and estimated, but not to be run with it.
    "gptj": Convention(
        norms=("attn_norm",), norm_bias=True, ffn_bias=True, gated=False, head_bias=True, llama_cpp=False
    ),
    "mimo": Convention(qkv_bias=True, llama_cpp=False),
    "opt": replace(_BIASED, learned_positions=2, tied_embeddings=True, llama_cpp=False),
}


def convention_of(architecture: str, where: str) -> Convention:
    """The rules of `architecture`; raises InputError, which says what an unknown one would need."""
    found = CONVENTIONS.get(architecture)
    if found is None:
        from difflib import get_close_matches

        close = get_close_matches(architecture, CONVENTIONS, n=3)
        hint = f" (did you mean {' or '.join(close)}?)" if close else ""
        raise InputError(
            f"{where}: unknown architecture {architecture!r}{hint}; it would need its layer pattern, norms, "
            "biases, kind of attention (heads, key/value heads, head sizes, window or state) and kind of feed-forward "
            "block (widths, experts)"
        )
    return found


def runs_in_llama_cpp(architecture: str) -> bool:
    """Whether llama.cpp b11434 can convert and run models of `architecture`."""
    return architecture in CONVENTIONS and CONVENTIONS[architecture].llama_cpp


def drafts_converted(architecture: str) -> bool:
    """Whether GGUF files of `architecture` hold the NextN/MTP blocks of its models."""
    return architecture not in CONVENTIONS or CONVENTIONS[architecture].drafts_converted
