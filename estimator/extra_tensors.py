"""Tensors that belong to one architecture alone: what neither attention nor feed-forward blocks imply.

Names and shapes as in llama.cpp b11434 (src/models); see `tensors` for the rest.
Imports `architecture`, `conventions` and `field_reader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .architecture import ExtraTensor, Ffn, MoeFfn
from .conventions import Convention
from .field_reader import FieldReader

PER_LAYER_FIELDS: Final = ("width", "vocab")
ALTUP_FIELDS: Final = ("inputs", "laurel_rank")


def model_extras(fields: FieldReader, architecture: str, rules: Convention, rope_dim: int) -> Iterator[ExtraTensor]:
    """Extra tensors of the whole model; `rope_dim` components of a head are rotated."""
    hidden, vocab = fields.integer("hidden"), fields.integer("vocab")
    if rules.learned_positions is not None:
        yield ExtraTensor("position_embd.weight", (hidden, fields.integer("max_context") + rules.learned_positions))
    if rules.embedding_norm:
        yield ExtraTensor("token_embd_norm.weight", (hidden,))
        yield ExtraTensor("token_embd_norm.bias", (hidden,))
    if rules.head_bias:
        yield ExtraTensor("output.bias", (vocab,))
    yield from _rope_factors(fields, architecture, rope_dim)
    yield from _per_layer_embeddings(fields, hidden, vocab)
    if "hyper_connections" in fields:
        copies = fields.integer("hyper_connections")
        yield ExtraTensor("output_hc_fn.weight", (copies * hidden, copies))
        yield ExtraTensor("output_hc_base.weight", (copies,))
        yield ExtraTensor("output_hc_scale.weight", (1,))
    if architecture == "kimi-k3":
        yield ExtraTensor("output_res_score.weight", (hidden,))


def layer_extras(fields: FieldReader, architecture: str, ffn: Ffn | None, hashed: bool) -> Iterator[ExtraTensor]:
    """Extra tensors of one layer; `hashed`: its experts are looked up by token."""
    hidden = fields.integer("hidden")
    if architecture == "falcon-h1":
        yield ExtraTensor("ffn_norm", (hidden,))
    if architecture == "gemma4":
        yield from _gemma4(ffn, hidden)
    if architecture == "kimi-k3":
        yield ExtraTensor("attn_res_score.weight", (hidden,))
        yield ExtraTensor("ffn_res_score.weight", (hidden,))
    if (embedding := fields.group("per_layer_embedding", PER_LAYER_FIELDS)) is not None:
        width = embedding.integer("width")
        yield ExtraTensor("inp_gate.weight", (hidden, width))
        yield ExtraTensor("proj.weight", (width, hidden))
        yield ExtraTensor("post_norm.weight", (hidden,))
    if (altup := fields.group("altup", ALTUP_FIELDS)) is not None:
        yield from _altup_and_laurel(altup, hidden)
    if "hyper_connections" in fields:
        yield from _hyper_connections(fields.integer("hyper_connections"), hidden)
    if hashed and isinstance(ffn, MoeFfn):
        yield ExtraTensor("ffn_gate_tid2eid.weight", (ffn.used, fields.integer("vocab")))


def draft_extras(
    fields: FieldReader, draft: FieldReader, architecture: str, rules: Convention
) -> Iterator[ExtraTensor]:
    """Extra tensors of a NextN/MTP layer; some checkpoints repeat embedding and output matrix in it."""
    hidden, vocab = fields.integer("hidden"), fields.integer("vocab")
    yield ExtraTensor("nextn.eh_proj.weight", (2 * hidden, hidden))
    yield ExtraTensor("nextn.enorm.weight", (hidden,))
    yield ExtraTensor("nextn.hnorm.weight", (hidden,))
    if architecture != "ernie4_5-moe":
        yield ExtraTensor("nextn.shared_head_norm.weight", (hidden,))
    if architecture == "deepseek4":  # in a file of its own, as llama.cpp keeps it, these are the output_hc_* tensors
        copies = fields.integer("hyper_connections")
        yield ExtraTensor("nextn.hc_head_fn.weight", (copies * hidden, copies))
        yield ExtraTensor("nextn.hc_head_base.weight", (copies,))
        yield ExtraTensor("nextn.hc_head_scale.weight", (1,))
    if draft.flag("embeddings", rules.draft_embeddings):
        yield ExtraTensor("nextn.embed_tokens.weight", (hidden, vocab))
    if draft.flag("head", rules.draft_head):
        yield ExtraTensor("nextn.shared_head_head.weight", (hidden, vocab))


def _rope_factors(fields: FieldReader, architecture: str, rope_dim: int) -> Iterator[ExtraTensor]:
    scaling = fields.choice("rope_scaling", "none", ("none", "llama3", "longrope"))
    if scaling == "llama3" or architecture == "gemma4":
        yield ExtraTensor("rope_freqs.weight", (rope_dim // 2,))
    if scaling == "longrope":
        yield ExtraTensor("rope_factors_long.weight", (rope_dim // 2,))
        yield ExtraTensor("rope_factors_short.weight", (rope_dim // 2,))


def _per_layer_embeddings(fields: FieldReader, hidden: int, vocab: int) -> Iterator[ExtraTensor]:
    embedding = fields.group("per_layer_embedding", PER_LAYER_FIELDS)
    if embedding is None:
        return
    width = embedding.integer("width")
    all_layers = width * fields.integer("layers")
    yield ExtraTensor("per_layer_token_embd.weight", (all_layers, vocab))
    yield ExtraTensor("per_layer_model_proj.weight", (hidden, all_layers))
    yield ExtraTensor("per_layer_proj_norm.weight", (width,))
    if (altup := fields.group("altup", ALTUP_FIELDS)) is not None:
        others = altup.integer("inputs") - 1
        yield ExtraTensor("altup_proj.weight", (hidden, hidden, others))
        yield ExtraTensor("altup_unembd_proj.weight", (hidden, hidden, others))


def _gemma4(ffn: Ffn | None, hidden: int) -> Iterator[ExtraTensor]:
    yield ExtraTensor("layer_output_scale.weight", (1,))
    if isinstance(ffn, MoeFfn):
        yield ExtraTensor("ffn_gate_inp.scale", (hidden,))
        yield ExtraTensor("ffn_down_exps.scale", (ffn.experts,))
        for norm in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
            yield ExtraTensor(f"{norm}.weight", (hidden,))


def _altup_and_laurel(altup: FieldReader, hidden: int) -> Iterator[ExtraTensor]:
    """Alternating updates and learned augmented residuals of Gemma 3n."""
    inputs, rank = altup.integer("inputs"), altup.integer("laurel_rank")
    yield ExtraTensor("altup_correct_coef.weight", (inputs, inputs))
    yield ExtraTensor("altup_correct_scale.weight", (hidden,))
    yield ExtraTensor("altup_predict_coef.weight", (inputs, inputs * inputs))
    yield ExtraTensor("altup_router.weight", (hidden, inputs))
    yield ExtraTensor("altup_router_norm.weight", (hidden,))
    yield ExtraTensor("laurel_l.weight", (hidden, rank))
    yield ExtraTensor("laurel_r.weight", (rank, hidden))
    yield ExtraTensor("laurel_post_norm.weight", (hidden,))


def _hyper_connections(copies: int, hidden: int) -> Iterator[ExtraTensor]:
    mixes = (2 + copies) * copies
    for block in ("attn", "ffn"):
        yield ExtraTensor(f"hc_{block}_fn.weight", (copies * hidden, mixes))
        yield ExtraTensor(f"hc_{block}_base.weight", (mixes,))
        yield ExtraTensor(f"hc_{block}_scale.weight", (3,))
