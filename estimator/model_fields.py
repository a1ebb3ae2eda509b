"""A model's fields, as the catalog writes them, to a Model.

The fields are plain names for what differs between models of one architecture; `conventions` adds what the architecture
implies. Every importer that knows no more than such figures comes through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from .architecture import (
    Attention,
    CachedMixer,
    CompressedAttention,
    DeltaNet,
    DenseFfn,
    Ffn,
    Indexer,
    KimiDelta,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba,
    Mixer,
    Model,
    MoeFfn,
    RecurrentMixer,
    Rwkv7,
    ShortConv,
    by_name,
)
from .conventions import convention_of
from .extra_tensors import PER_LAYER_FIELDS, draft_extras, layer_extras, model_extras
from .field_reader import FieldReader

MAX_LAYERS: Final = 4096
MAX_EXPERTS: Final = 65536
MAX_HIDDEN: Final = 2**20
MAX_VOCAB: Final = 2**25

DESCRIPTION_FIELDS: Final = (
    "name", "aliases", "hugging_face", "parameters", "also_holds", "active_parameters", "notes", "sources",
)  # fmt: skip
SHAPE_FIELDS: Final = (
    "architecture", "layers", "hidden", "vocab", "heads", "kv_heads", "head_dim", "value_dim", "ffn", "experts",
    "window", "pattern", "window_layers", "shared_cache_layers", "key_is_value", "latent", "indexer", "compression",
    "mamba", "delta_net", "kda", "short_conv", "rwkv", "hyper_connections", "hash_layers", "per_layer_embedding",
    "altup", "qkv_bias", "output_bias", "ffn_bias", "qk_norm", "norms", "rope_scaling", "rope_dim", "tied_embeddings",
    "max_context", "draft",
)  # fmt: skip
ATTENTION_FIELDS: Final = ("heads", "kv_heads", "head_dim", "value_dim")
EXPERT_FIELDS: Final = (
    "count", "used", "ffn", "shared", "shared_ffn", "dense_layers", "every", "latent", "selection_bias",
)  # fmt: skip
LATENT_FIELDS: Final = ("query_rank", "kv_rank", "nope", "rope", "value")
INDEXER_FIELDS: Final = ("heads", "head_dim", "top_k", "pattern")
COMPRESSION_FIELDS: Final = ("query_rank", "output_rank", "output_groups", "rope", "first", "ratios")
MAMBA_FIELDS: Final = ("inner", "state", "conv", "dt_rank", "heads", "groups", "gated_norm")
DELTA_NET_FIELDS: Final = ("key_heads", "value_heads", "key_dim", "value_dim", "conv")
KDA_FIELDS: Final = ("heads", "head_dim", "conv")
RWKV_FIELDS: Final = ("head_dim", "decay_rank", "rate_rank", "value_rank", "gate_rank", "first_value_residual")
DRAFT_FIELDS: Final = ("layers", "embeddings", "head")

_NO_MIXER: Final = "NDE"
_INDEXED_RATIO: Final = 4  # DeepSeek V4 layers with this ratio select entries with an indexer


def model_from_fields(id: str, fields: Mapping[str, Any], where: str) -> Model:
    """The Model that the `fields` of the entry `id` describe.

    Raises InputError, naming `where` and the field, for unknown fields, wrong types, sizes that cannot be, and an
    architecture that nobody has described in `conventions`.
    """
    return _Builder(id, FieldReader(fields, where, DESCRIPTION_FIELDS + SHAPE_FIELDS)).model()


class _Builder:
    """Assembles one Model; identical layers become one Layer object."""

    def __init__(self, id: str, fields: FieldReader) -> None:
        self.id = id
        self.fields = fields
        self.architecture = fields.text("architecture")
        self.rules = convention_of(self.architecture, f"{fields.where}: architecture")
        self.count = fields.integer("layers", maximum=MAX_LAYERS)
        self.hidden = fields.integer("hidden", maximum=MAX_HIDDEN)
        self.vocab = fields.integer("vocab", maximum=MAX_VOCAB)
        self.pattern = fields.pattern("pattern", self.rules.pattern, "FSLMPCRNDE", self.count)
        self.widths = fields.per_layer("ffn", self.count, default=0)
        self.experts = fields.group("experts", EXPERT_FIELDS)
        self.compression = fields.group("compression", COMPRESSION_FIELDS)
        self.ratios = self._ratios()
        self.indexers = self._indexer_pattern()

    def model(self) -> Model:
        """The finished Model."""
        return Model(
            id=self.id,
            name=self.fields.text("name", self.id),
            architecture=self.architecture,
            vocab=self.vocab,
            hidden=self.hidden,
            layers=self._layers(),
            draft_layers=self._draft_layers(),
            tied_embeddings=self.fields.flag("tied_embeddings", self.rules.tied_embeddings),
            max_context=self.fields.optional_integer("max_context"),
            final_norm=self.rules.final_norm,
            norm_bias=self.rules.norm_bias,
            extras=by_name(model_extras(self.fields, self.architecture, self.rules, self._rope_dim())),
            padding=self._padding(),
        )

    # Layers

    def _layers(self) -> tuple[Layer, ...]:
        owned = self.count - self.fields.integer("shared_cache_layers", 0, minimum=0, maximum=self.count)
        hashed = self.fields.integer("hash_layers", 0, minimum=0)
        built: dict[tuple[object, ...], Layer] = {}
        layers = []
        for index, letter in enumerate(self.pattern):
            what = (letter, index >= owned, self.widths[index], self._has_experts(index), self.indexers[index],
                    self.ratios[index], index < hashed, letter == "R" and index == 0)  # fmt: skip
            if what not in built:
                built[what] = self._layer(index, letter, index >= owned, index < hashed)
            layers.append(built[what])
        return tuple(layers)

    def _layer(self, index: int, letter: str, shares_cache: bool, hashed: bool) -> Layer:
        mixers, ffn = self._mixers(index, letter, shares_cache), self._ffn(index, letter)
        if hashed and isinstance(ffn, MoeFfn):  # experts are looked up by token instead of chosen
            ffn = replace(ffn, selection_bias=False)
        extras = by_name(layer_extras(self.fields, self.architecture, ffn, hashed))
        return Layer(mixers, ffn, self._norms(mixers, ffn), self.rules.norm_bias, extras)

    def _norms(self, mixers: tuple[Mixer, ...], ffn: Ffn | None) -> tuple[str, ...]:
        norms = self.rules.norms[: self.fields.integer("norms", len(self.rules.norms), minimum=0)]
        if self.rules.single_part_blocks or (mixers and ffn):
            return norms
        absent = "attn" if ffn else "ffn"
        return tuple(name for name in norms if not name.startswith(absent))

    def _mixers(self, index: int, letter: str, shares_cache: bool) -> tuple[Mixer, ...]:
        if letter in _NO_MIXER:
            return ()
        if letter in "FS":
            return (self._cached(letter, shares_cache, self.indexers[index], self.ratios[index]),)
        if letter == "P":
            return (self._mamba(), self._cached("F", shares_cache, "N", 0))
        return (self._recurrent(index, letter),)

    def _draft_layers(self) -> tuple[Layer, ...]:
        """NextN/MTP blocks: a decoder layer behind a projection of the last state beside the next token's embedding."""
        draft = self.fields.group("draft", DRAFT_FIELDS)
        if draft is None:
            return ()
        letter = "S" if self.rules.draft_sliding else "F"
        mixers: tuple[Mixer, ...] = (self._cached(letter, False, "F" if "indexer" in self.fields else "N", 0),)
        ffn = self._dense(self.widths[-1]) if self.experts is None or self.rules.draft_dense else self._moe(0)
        extras = (*layer_extras(self.fields, self.architecture, ffn, False),
                  *draft_extras(self.fields, draft, self.architecture, self.rules))  # fmt: skip
        layer = Layer(mixers, ffn, self.rules.draft_norms or self.rules.norms, self.rules.norm_bias, by_name(extras))
        return (layer,) * draft.integer("layers", 1, minimum=0, maximum=64)

    # Attention

    def _cached(self, letter: str, shares_cache: bool, indexer: str, ratio: int) -> CachedMixer:
        if (latent := self.fields.group("latent", LATENT_FIELDS)) is not None:
            return self._latent(latent, self._indexer(indexer))
        if self.compression is not None:
            return self._compressed(self.compression, ratio)
        attention = self._attention(letter == "S")
        return replace(attention, shares_cache=shares_cache, indexer=self._indexer(indexer))

    def _attention(self, sliding: bool) -> Attention:
        window = self.fields.optional_integer("window") or self.rules.window
        slides = sliding and window is not None
        heads, kv_heads, key_dim, value_dim = self._heads(slides)
        return Attention(
            heads=heads,
            kv_heads=kv_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            window=window if slides else None,
            chunked=slides and self.rules.chunked,
            fused_qkv=self.rules.fused_qkv,
            qkv_bias=self.fields.flag("qkv_bias", self.rules.qkv_bias),
            output_bias=self.fields.flag("output_bias", self.rules.output_bias),
            qk_norm=self.fields.choice("qk_norm", self.rules.qk_norm, ("none", "head", "heads", "full")),
            gate=self.rules.gate,
            sinks=self.rules.sinks == "all" or (slides and self.rules.sinks == "window"),
            key_is_value=not slides and self.fields.flag("key_is_value", False),
        )

    def _heads(self, sliding: bool) -> tuple[int, int, int, int]:
        """Query heads, key/value heads, and the sizes of their keys and values."""
        own = self.fields.group("window_layers", ATTENTION_FIELDS) if sliding else None
        base = self.fields
        heads = base.integer("heads")
        kv_heads = base.integer("kv_heads", heads)
        if "head_dim" not in base and self.hidden % heads:
            raise base.fail("head_dim", f"is missing, and hidden {self.hidden} is not a multiple of {heads} heads")
        key_dim = base.integer("head_dim", self.hidden // heads)
        value_dim = base.integer("value_dim", key_dim)
        if own is not None:
            heads, kv_heads = own.integer("heads", heads), own.integer("kv_heads", kv_heads)
            value_dim = own.integer("value_dim", own.integer("head_dim", value_dim))
            key_dim = own.integer("head_dim", key_dim)
        if heads % kv_heads:
            raise base.fail("kv_heads", f"{heads} heads cannot share {kv_heads} key/value heads evenly")
        return heads, kv_heads, key_dim, value_dim

    def _latent(self, latent: FieldReader, indexer: Indexer | None) -> LatentAttention:
        return LatentAttention(
            heads=self.fields.integer("heads"),
            query_rank=latent.integer("query_rank", 0, minimum=0),
            kv_rank=latent.integer("kv_rank"),
            nope_dim=latent.integer("nope"),
            rope_dim=latent.integer("rope"),
            value_dim=latent.integer("value"),
            absorbed=self.rules.latent_absorbed,
            gate=self.rules.latent_gate,
            indexer=indexer,
        )

    def _indexer_pattern(self) -> str:
        """For each layer F for an indexer of its own, S for an earlier layer's selection, N for none."""
        indexer = self.fields.group("indexer", INDEXER_FIELDS)
        if indexer is None or "compression" in self.fields:
            return "N" * self.count
        return indexer.pattern("pattern", "F", "FSN", self.count)

    def _indexer(self, kind: str) -> Indexer | None:
        indexer = self.fields.group("indexer", INDEXER_FIELDS)
        if indexer is None or kind == "N":
            return None
        return Indexer(indexer.integer("heads"), indexer.integer("head_dim"), indexer.integer("top_k"), kind == "F")

    def _ratios(self) -> tuple[int, ...]:
        """Tokens that a compressed cache entry of each layer stands for: the `first` ones, then `ratios` in turn."""
        if self.compression is None:
            return (0,) * self.count
        first, cycle = self.compression.integers("first"), self.compression.integers("ratios")
        if not cycle:
            raise self.compression.fail("ratios", "is missing")
        return (first + cycle * self.count)[: self.count]

    def _compressed(self, compression: FieldReader, ratio: int) -> CompressedAttention:
        return CompressedAttention(
            heads=self.fields.integer("heads"),
            head_dim=self.fields.integer("head_dim"),
            query_rank=compression.integer("query_rank"),
            output_rank=compression.integer("output_rank"),
            output_groups=compression.integer("output_groups"),
            rope_dim=compression.integer("rope"),
            window=self.fields.integer("window"),
            ratio=ratio,
            indexer=self._indexer("F") if ratio == _INDEXED_RATIO else None,
        )

    # Recurrent layers

    def _recurrent(self, index: int, letter: str) -> RecurrentMixer:
        if letter == "M":
            return self._mamba()
        if letter == "C":
            return ShortConv(self.fields.integer("short_conv"))
        if letter == "R":
            return self._rwkv(index)
        if "delta_net" in self.fields:
            return self._delta_net()
        if "kda" in self.fields:
            return self._kimi_delta()
        heads, _, head_dim, _ = self._heads(False)
        return LightningAttention(heads, head_dim)

    def _needed(self, key: str, known: tuple[str, ...]) -> FieldReader:
        group = self.fields.group(key, known)
        if group is None:
            raise self.fields.fail(key, f"is missing, and the layers of this {self.architecture} model need it")
        return group

    def _mamba(self) -> Mamba:
        mamba = self._needed("mamba", MAMBA_FIELDS)
        inner, state, conv = mamba.integer("inner"), mamba.integer("state"), mamba.integer("conv")
        if self.rules.mamba_version == 1:
            rank = mamba.integer("dt_rank", -(-self.hidden // 16))
            return Mamba(1, inner, state, conv, dt_rank=rank, inner_norms=self.rules.mamba_inner_norms)
        gated_norm = mamba.flag("gated_norm", self.rules.mamba_gated_norm)
        groups = mamba.integer("groups", 1)
        return Mamba(2, inner, state, conv, groups=groups, heads=mamba.integer("heads"), gated_norm=gated_norm)

    def _delta_net(self) -> DeltaNet:
        net = self._needed("delta_net", DELTA_NET_FIELDS)
        return DeltaNet(
            key_heads=net.integer("key_heads"),
            value_heads=net.integer("value_heads"),
            key_dim=net.integer("key_dim"),
            value_dim=net.integer("value_dim"),
            conv=net.integer("conv"),
            fused_beta_alpha=self.rules.fused_beta_alpha,
        )

    def _kimi_delta(self) -> KimiDelta:
        kda = self._needed("kda", KDA_FIELDS)
        return KimiDelta(kda.integer("heads"), kda.integer("head_dim"), kda.integer("conv"), self.rules.full_rank_gate)

    def _rwkv(self, index: int) -> Rwkv7:
        rwkv = self._needed("rwkv", RWKV_FIELDS)
        return Rwkv7(
            head_dim=rwkv.integer("head_dim"),
            decay_rank=rwkv.integer("decay_rank"),
            rate_rank=rwkv.integer("rate_rank"),
            value_rank=rwkv.integer("value_rank"),
            gate_rank=rwkv.integer("gate_rank"),
            first=index == 0,
        )

    # Feed-forward blocks

    def _ffn(self, index: int, letter: str) -> Ffn | None:
        if self.rules.single_part_blocks and letter not in "DE":
            return None
        if letter == "E" or self._has_experts(index):
            return self._moe(self.widths[index])
        return self._dense(self.widths[index]) if self.widths[index] else None

    def _has_experts(self, index: int) -> bool:
        if self.experts is None or self.rules.single_part_blocks:
            return False
        every = self.experts.integer("every", 1)
        return index >= self.experts.integer("dense_layers", 0, minimum=0) and (index + 1) % every == 0

    def _dense(self, width: int) -> DenseFfn:
        return DenseFfn(
            width=width,
            gated=self.rules.gated,
            fused_gate_up=self.rules.fused_gate_up,
            bias=self.fields.flag("ffn_bias", self.rules.ffn_bias),
            kind="rwkv" if "R" in self.pattern else "mlp",
            scalars=self.rules.activation_scalars,
        )

    def _moe(self, dense_width: int) -> MoeFfn:
        experts = self._needed("experts", EXPERT_FIELDS)
        count, width = experts.integer("count", maximum=MAX_EXPERTS), experts.integer("ffn")
        return MoeFfn(
            experts=count,
            used=experts.integer("used", maximum=count),
            width=width,
            gated=self.rules.gated,
            shared_width=experts.integer("shared_ffn", experts.integer("shared", 0, minimum=0) * width, minimum=0),
            shared_gate=self.rules.shared_gate,
            selection_bias=experts.flag("selection_bias", self.rules.selection_bias),
            router_bias=self.rules.router_bias,
            expert_bias=self.rules.expert_bias,
            latent=experts.integer("latent", 0, minimum=0),
            latent_norm=self.rules.latent_expert_norm,
            fused_gate_up=self.rules.fused_experts,
            dense=self._dense(dense_width) if self.rules.dense_beside_experts else None,
        )

    def _rope_dim(self) -> int:
        """Components of a head that rotary embedding turns."""
        latent = self.fields.group("latent", LATENT_FIELDS)
        if latent is not None:
            return latent.integer("rope")
        if "rope_dim" in self.fields or "heads" not in self.fields:
            return self.fields.integer("rope_dim", 0, minimum=0)
        return self._heads(False)[2]

    def _padding(self) -> int:
        """Values that the converter adds: rows of Gemma 3n's per-layer embedding, RWKV-7's first value residual."""
        if (embedding := self.fields.group("per_layer_embedding", PER_LAYER_FIELDS)) is not None:
            rows = self.vocab - embedding.integer("vocab", self.vocab, maximum=self.vocab)
            return rows * embedding.integer("width") * self.count
        if (rwkv := self.fields.group("rwkv", RWKV_FIELDS)) is not None:
            own = 2 * rwkv.integer("value_rank") + 1 if rwkv.flag("first_value_residual", True) else 0
            return (2 * rwkv.integer("rate_rank") + 1 - own) * self.hidden
        return 0
