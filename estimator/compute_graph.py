"""llama.cpp's compute graph for one micro-batch: the tensors it allocates, in execution order.

After llama.cpp b11434, src/llama-graph.cpp and src/models/*.cpp. Only what matters for memory is here: sizes, readers,
what may work in place, where weights are. Widths are values a token; activations are F32. It is the graph that buffers
are reserved with: a full micro-batch that attends to all cells (src/llama-context.cpp: sched_reserve).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .architecture import (
    Attention,
    CompressedAttention,
    DeltaNet,
    DenseFfn,
    KimiDelta,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba,
    Mixer,
    Model,
    MoeFfn,
    Rwkv7,
    ShortConv,
)
from .ggml_types import ggml_type
from .graph_allocator import Graph, Tensor, View, base
from .kv_cache import compressed_cells, window_cells
from .placement import HOST, Placement
from .workload import Workload, minimum, padded

F32: Final = 4
F16: Final = 2
I32: Final = 4
I64: Final = 8

# Builds differ in how a batch of embeddings enters: as an unused input, or (b11434) mixed with tokens row by row.
Build = Literal["b11434", "separate-embeddings"]

LAYER_NORM_ARCHITECTURES: Final = frozenset(
    {"bloom", "codeshell", "cohere2", "command-r", "dbrx", "falcon", "gpt2", "gptneox", "jais", "mpt", "nemotron",
     "olmo", "orion", "phi2", "phimoe", "stablelm", "starcoder", "starcoder2", "rwkv7"}
)  # fmt: skip  # these normalise with ggml_norm, which cannot work in place
PARALLEL_ARCHITECTURES: Final = frozenset({"gptneox"})  # two norms, but attention and feed-forward side by side
UNROTATED_ARCHITECTURES: Final = frozenset(
    {"bloom", "gpt2", "granitehybrid", "jais", "jamba", "mpt", "nemotron_h", "nemotron_h_moe", "starcoder"}
)  # no RoPE
SCALED_EMBEDDING_ARCHITECTURES: Final = frozenset({"gemma", "gemma2", "gemma3", "gemma3n", "gemma4"})
# Where the rows with wanted logits are picked, if not after the last layer's attention: before or after the final norm.
LATE_SELECTION: Final[dict[str, Literal["before norm", "after norm"]]] = {
    **dict.fromkeys(("gpt-oss", "step35"), "before norm"),
    **dict.fromkeys(
        ("qwen3next", "qwen35", "qwen35moe", "nemotron_h", "nemotron_h_moe", "gemma4", "hy_v3", "bailingmoe3"),
        "after norm",
    ),
}
SOFTMAX_WEIGHT_ARCHITECTURES: Final = frozenset({"gpt-oss"})  # softmax over the chosen experts only
UNNORMALIZED_EXPERT_ARCHITECTURES: Final = frozenset({"olmoe", "deepseek", "qwen2moe"})


@dataclass(frozen=True)
class Batch:
    """The micro-batch that buffers are reserved for."""

    tokens: int
    sequences: int
    outputs: int

    @property
    def tokens_per_sequence(self) -> int:
        """Tokens of each sequence."""
        return self.tokens // self.sequences


def reserved_batch(workload: Workload, context: int) -> Batch:
    """Tokens, sequences and output rows of the graph that llama.cpp reserves for `context` configured tokens."""
    tokens = minimum(workload.cells_per_stream(context) * workload.streams, workload.ubatch_tokens(context))
    outputs = tokens if workload.all_logits else min(tokens, workload.parallel)
    return Batch(padded(tokens, workload.parallel), workload.parallel, outputs)


def build_graph(
    model: Model,
    placement: Placement,
    workload: Workload,
    context: int,
    layers: Sequence[int] | None = None,
    build: Build = "b11434",
    attention_scratch: bool = False,
) -> Graph:
    """The graph of `model`, or of some of its `layers` (indices) that stand for all of them.

    `attention_scratch`: CUDA's flash attention keeps F16 copies of a layer's cache if that has another type
    (ggml/src/ggml-cuda/fattn.cu).
    """
    indices = range(model.n_layers) if layers is None else layers
    return _Builder(model, placement, workload, context, build, attention_scratch).stack(indices)


class _Builder:
    """Appends operations for one model and one micro-batch. Names follow the literature: x, q, k, v."""

    def __init__(
        self, model: Model, placement: Placement, workload: Workload, context: int, build: Build, scratch: bool
    ) -> None:
        self.model = model
        self.placement = placement
        self.workload = workload
        self.scratch = scratch
        self.context = context
        self.build: Build = build
        self.batch = reserved_batch(workload, context)
        self.rows = self.batch.tokens  # rows of the residual stream: outputs only, at the end
        self.graph = Graph()
        self.inputs: dict[tuple[str, int], Tensor] = {}
        self.device = HOST
        self.expert_device = HOST
        self.cache_device = HOST
        self.windowed = any(
            isinstance(mixer, Attention) and mixer.window for layer in model.layers for mixer in layer.mixers
        )
        self.norm_inplace = model.architecture not in LAYER_NORM_ARCHITECTURES

    # Primitives.

    def input(self, name: str, size: int, key: int = 0) -> Tensor:
        """An input, created at its first use; `key` tells inputs of one name apart."""
        if (name, key) not in self.inputs:
            self.inputs[name, key] = self.graph.input(size)
        return self.inputs[name, key]

    def bytes(self, width: int) -> int:
        """Bytes of `width` F32 values for every row."""
        return width * self.rows * F32

    def op(self, width: int, *sources: Tensor | View) -> Tensor:
        """An operation without weights, with a result of its own."""
        return self.graph.add(self.bytes(width), *sources)

    def matmul(self, width: int, *sources: Tensor | View) -> Tensor:
        """A product with a weight matrix."""
        return self.graph.add(self.bytes(width), *sources, device=self.device)

    def inplace(self, x: Tensor, *others: Tensor | View) -> Tensor:
        """An element-wise operation without weights, in the memory of a source if that is free."""
        return self.graph.add(x.size, x, *others, inplace=True)

    def scale(self, x: Tensor, *others: Tensor | View) -> Tensor:
        """An element-wise operation with a weight vector."""
        return self.graph.add(x.size, x, *others, device=self.device, inplace=True)

    def add(self, y: Tensor | View, x: Tensor | View) -> Tensor:
        """The sum of two equal tensors, in the memory of the first that is free."""
        return self.graph.add(base(y).size, y, x, inplace=True)

    def norm(self, x: Tensor | View, width: int) -> Tensor:
        """Normalise, then scale by weights."""
        normalized = self.graph.add(self.bytes(width), x, inplace=self.norm_inplace)
        return self.scale(normalized)

    def store(self, x: Tensor | View, *others: Tensor | View) -> None:
        """Write into the layer's cache."""
        self.graph.add(0, x, *others, device=self.cache_device)

    def select_outputs(self, x: Tensor | View) -> Tensor:
        """Keep only the rows whose logits are wanted."""
        ids = self.input("outputs", self.batch.outputs * I32)
        self.rows = self.batch.outputs
        return self.op(self.model.hidden, x, ids)

    # The whole model.

    def stack(self, indices: Sequence[int]) -> Graph:
        x = self.embed()
        for i in indices:
            self.device = self.placement.slots[i]
            self.expert_device = self.placement.expert_device(i)
            self.cache_device = self.placement.cache_device(i)
            x = self.layer(self.model.layers[i], x, last=i == indices[-1])
        selection = LATE_SELECTION.get(self.model.architecture)
        if selection == "before norm":
            x.kept = True  # all rows stay available to a draft head
            x = self.select_outputs(x)
        self.device = self.placement.output
        x = self.norm(x, self.model.hidden)
        if selection == "after norm":
            x.kept = True
            x = self.select_outputs(x)
        self.matmul(self.model.vocab, x)
        return self.graph

    def embed(self) -> Tensor:
        """Token embeddings, and the other ways in that llama.cpp keeps ready."""
        hidden, tokens = self.model.hidden, self.batch.tokens
        self.device = HOST
        ids = self.input("tokens", tokens * I32)
        self.input("embeddings", self.bytes(hidden))
        mixed = self.build == "b11434"
        if mixed:
            self.input("mixed tokens", tokens * I32)
            self.input("mixed slots", tokens * I64)
            self.input("mixed embeddings", self.bytes(hidden))
        x = self.matmul(hidden, ids)
        if mixed:
            rows = self.matmul(hidden, self.input("mixed tokens", 0))
            both = self.op(hidden, self.input("mixed embeddings", 0))
            both.kept = True
            self.graph.add(0, rows, self.input("mixed slots", 0), both.view)
        if self.model.architecture in SCALED_EMBEDDING_ARCHITECTURES:
            x = self.inplace(x, self.input("row scales", tokens * F32)) if mixed else self.inplace(x)
        return x

    def layer(self, layer: Layer, x: Tensor, last: bool) -> Tensor:
        """One block; the last one goes on with output rows alone after its mixer."""
        hidden, norms = self.model.hidden, layer.norms
        normed_first = norms[:1] != ("post_attention_norm",)
        y: Tensor | View = self.norm(x, hidden) if normed_first and norms else x
        first = y
        if layer.mixers:
            y = self.mix(layer.mixers, base(y))
            select = last and self.model.architecture not in LATE_SELECTION
            if select:
                y = self.select_outputs(y)
            if "post_attention_norm" in norms and "post_ffw_norm" in norms:
                y = self.norm(y, hidden)
            if select:
                x = self.select_outputs(x)
            if layer.ffn is not None and (len(norms) == 1 or self.model.architecture in PARALLEL_ARCHITECTURES):
                return self.parallel_ffn(layer, x, y, self.select_outputs(first) if select else first)
            x = self.add(y, x)
            if layer.ffn is None:
                return x
            y = self.norm(x, hidden) if normed_first else x
        assert layer.ffn is not None
        y = self.ffn(layer.ffn, base(y))
        if "post_ffw_norm" in norms:
            y = self.norm(y, hidden)
        return self.add(y, x)

    def parallel_ffn(self, layer: Layer, x: Tensor, attention: Tensor | View, first: Tensor | View) -> Tensor:
        """Attention and feed-forward side by side on the same input, or on two norms of it."""
        assert layer.ffn is not None
        y = self.norm(x, self.model.hidden) if len(layer.norms) > 1 else base(first)
        return self.add(self.add(self.ffn(layer.ffn, y), x), attention)

    def mix(self, mixers: Sequence[Mixer], x: Tensor) -> Tensor | View:
        """One mixer, or several side by side whose results are added."""
        y = self.mixer(mixers[0], x)
        for mixer in mixers[1:]:
            y = self.add(y, self.mixer(mixer, x))
        return y

    def mixer(self, mixer: Mixer, x: Tensor) -> Tensor | View:
        if isinstance(mixer, Attention):
            return self.attention(mixer, x)
        if isinstance(mixer, LatentAttention):
            return self.latent_attention(mixer, x)
        if isinstance(mixer, CompressedAttention):
            return self.compressed_attention(mixer, x)
        if isinstance(mixer, Mamba):
            return self.mamba1(mixer, x) if mixer.version == 1 else self.mamba2(mixer, x)
        if isinstance(mixer, DeltaNet):
            return self.delta_net(mixer, x)
        if isinstance(mixer, KimiDelta):
            return self.kimi_delta(mixer, x)
        if isinstance(mixer, ShortConv):
            return self.short_conv(mixer, x)
        if isinstance(mixer, Rwkv7):
            return self.rwkv7(mixer, x)
        return self.lightning(mixer, x)

    # Attention over a cache.

    def attention(self, a: Attention, x: Tensor) -> Tensor:
        q, k, v, gate = self.queries_keys_values(a, x)
        if k is not None and v is not None:
            self.store(k.view, self.cache_index("k index", a.window, 1))
            index_width = 1 if self.workload.flash_attention else a.kv_heads * a.value_dim
            self.store(v.view, self.cache_index("v index", a.window, index_width))
        y = self.attend(q, a.heads, a.value_dim, a.window, kv_widths=(a.kv_heads * a.key_dim, a.kv_heads * a.value_dim))
        y = self.rotate(y, a, key=False)
        return self.attention_output(a, y, gate)

    def queries_keys_values(
        self, a: Attention, x: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Q, K, V after biases, norms, RoPE and rotation, and Q's matrix product where it also holds a gate."""
        if a.fused_qkv:
            return *self.fused_queries_keys_values(a, x), None
        self.rotation(a, key=True)
        q = self.matmul(a.heads * a.key_dim * (2 if a.gate == "query" else 1), x)
        gate = q if a.gate == "query" else None
        if a.qkv_bias:
            q = self.scale(q)
        q = self.shaped(a, q, a.heads * a.key_dim, fused=gate is not None)
        if self.model.architecture.startswith("gemma"):
            q = self.inplace(q)
        q = self.rotate(q, a, key=True)
        if a.shares_cache:
            return q, None, None, gate
        if self.windowed:
            k, v = self.key(a, x), self.value(a, x)
        else:
            v, k = self.value(a, x), self.key(a, x)
        return q, k, v, gate

    def fused_queries_keys_values(self, a: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q_width, k_width = a.heads * a.key_dim, a.kv_heads * a.key_dim
        qkv = self.matmul(q_width + k_width + a.kv_heads * a.value_dim, x)
        if a.qkv_bias:
            qkv = self.scale(qkv)
        q = self.rotate(self.shaped(a, qkv, q_width, fused=True), a, key=True)
        k = self.rotate(self.shaped(a, qkv, k_width, fused=True), a, key=True)
        return q, k, self.rotate(qkv, a, key=False)

    def key(self, a: Attention, x: Tensor) -> Tensor:
        width = a.kv_heads * a.key_dim
        return self.rotate(self.shaped(a, self.projection(a, width, x), width), a, key=True)

    def value(self, a: Attention, x: Tensor) -> Tensor:
        width = a.kv_heads * a.value_dim
        self.rotation(a, key=False)
        v = self.projection(a, width, x)
        if self.model.architecture in ("gemma3n", "gemma4"):  # normalised without weights
            v = self.op(width, v.view)
        return self.rotate(v, a, key=False)

    def projection(self, a: Attention, width: int, x: Tensor) -> Tensor:
        y = self.matmul(width, x)
        return self.scale(y) if a.qkv_bias else y

    def shaped(self, a: Attention, x: Tensor, width: int, fused: bool = False) -> Tensor:
        """Norm and RoPE of Q or K; the first of them to see a reshaped view makes a copy."""
        source: Tensor | View = x.view
        if a.qk_norm == "full" and not fused:
            x = self.norm(x, width)
            source = x.view
        elif a.qk_norm != "none":
            x = self.norm(source, width)
            source = x
        if self.model.architecture in UNROTATED_ARCHITECTURES:
            return x
        positions = self.input("positions", self.batch.tokens * I32)
        return self.graph.add(self.bytes(width), source, positions, inplace=True)

    def rotate(self, x: Tensor, a: Attention, key: bool) -> Tensor:
        """Spread outliers over the head before or after a quantised cache, where llama.cpp does."""
        matrix = self.rotation(a, key)
        return x if matrix is None else self.graph.add(x.size, matrix, x.view)

    def rotation(self, a: Attention, key: bool) -> Tensor | None:
        """The Hadamard matrix for it (src/llama-kv-cache.cpp), if one is used."""
        head_dim = a.key_dim if key else a.value_dim
        kind = ggml_type(self.workload.kv_type_k if key else self.workload.kv_type_v)
        if not kind.is_quantized or head_dim % 64 or not self.uniform_heads(key):
            return None
        size = 64
        while key and head_dim % (2 * size) == 0:
            size *= 2
        return self.input("k rotation" if key else "v rotation", size * size * F32, a.window or 0)

    def uniform_heads(self, key: bool) -> bool:
        """Whether all attention layers have the same head size."""
        dims = {
            mixer.key_dim if key else mixer.value_dim
            for layer in self.model.layers
            for mixer in layer.mixers
            if isinstance(mixer, Attention)
        }
        return len(dims) == 1

    def cache_index(self, name: str, window: int | None, width: int) -> Tensor:
        """Cells that the micro-batch writes; for a transposed V one index a value."""
        return self.input(name, self.batch.tokens * width * I64, window or 0)

    def mask(self, window: int | None) -> Tensor:
        """Attention mask, cells × tokens: F16 for flash attention, else F32."""
        cells = window_cells(window, self.workload, self.context)
        value = F16 if self.workload.flash_attention else F32
        return self.input("mask", int(cells) * self.batch.tokens * value, window or 0)

    def attend(self, q: Tensor, heads: int, value_dim: int, window: int | None, kv_widths: tuple[int, int]) -> Tensor:
        """Attention of all heads over the cache."""
        cells = int(window_cells(window, self.workload, self.context))
        mask = self.mask(window)
        if self.workload.flash_attention:
            copies = [
                self.graph.add(cells * self.workload.streams * width * F16)
                for width, kind in zip(kv_widths, (self.workload.kv_type_k, self.workload.kv_type_v), strict=True)
                if kind == "F32"
            ]
            return self.graph.add(
                self.bytes(heads * value_dim) + self.scratch_bytes(cells, kv_widths), q.view, *copies, mask
            )
        scores = self.op(heads * cells, q.view)
        if self.model.architecture in ("gemma2", "grok"):  # soft cap
            scores = self.inplace(self.inplace(self.inplace(scores)))
        scores = self.inplace(scores, mask)
        y = self.op(heads * value_dim, scores)
        return self.op(heads * value_dim, y.view)

    def scratch_bytes(self, cells: int, kv_widths: tuple[int, int]) -> int:
        """F16 copies that CUDA's flash attention kernel makes of K and V of another type."""
        types = (self.workload.kv_type_k, self.workload.kv_type_v)
        if not self.scratch:
            return 0
        width = sum(width for width, kind in zip(kv_widths, types, strict=True) if kind not in ("F16", "F32"))
        return cells * self.workload.streams * width * F16

    def attention_output(self, a: Attention, y: Tensor, gate: Tensor | None) -> Tensor:
        width = a.heads * a.value_dim
        source: Tensor | View = y.view if self.workload.flash_attention else y
        if gate is not None:
            opened = self.inplace(self.op(width, gate.view))
            source = self.graph.add(self.bytes(width), source, opened, inplace=True)
        out = self.matmul(self.model.hidden, source)
        return self.scale(out) if a.output_bias else out

    def latent_attention(self, a: LatentAttention, x: Tensor) -> Tensor:
        q = self.latent_query(a, x)
        if not a.absorbed:
            return self.expanded_latent(a, x, q)
        latent_width = a.kv_rank + a.rope_dim
        positions = self.input("positions", self.batch.tokens * I32)
        absorbed = self.matmul(a.heads * a.kv_rank, q.view)
        rotated = self.op(a.heads * a.rope_dim, q.view, positions)
        query = self.op(a.heads * latent_width, absorbed.view, rotated)
        compressed = self.matmul(latent_width, x)
        normalized = self.norm(compressed.view, a.kv_rank)
        key_rope = self.op(a.rope_dim, compressed.view, positions)
        key = self.op(latent_width, normalized.view, key_rope)
        self.store(key.view, self.cache_index("k index", None, 1))
        y = self.latent_attend(a, query)
        return self.matmul(self.model.hidden, y)

    def latent_query(self, a: LatentAttention, x: Tensor) -> Tensor:
        if a.query_rank:
            x = self.norm(self.matmul(a.query_rank, x), a.query_rank)
        return self.matmul(a.heads * (a.nope_dim + a.rope_dim), x)

    def latent_attend(self, a: LatentAttention, q: Tensor) -> Tensor | View:
        cells = int(window_cells(None, self.workload, self.context))
        if self.workload.flash_attention:
            y = self.op(a.heads * a.kv_rank, q.view, self.mask(None))
            y = self.matmul(a.heads * a.value_dim, y.view)
            return self.op(a.heads * a.value_dim, y.view).view
        values = self.graph.add(cells * self.workload.streams * a.kv_rank * ggml_type(self.workload.kv_type_k).bytes)
        scores = self.inplace(self.op(a.heads * cells, q.view), self.mask(None))
        y = self.op(a.heads * a.kv_rank, values, scores)
        y = self.matmul(a.heads * a.value_dim, y)
        return self.op(a.heads * a.value_dim, y.view)

    def expanded_latent(self, a: LatentAttention, x: Tensor, q: Tensor) -> Tensor:
        """MLA with full K and V of every head in the cache."""
        key_dim = a.nope_dim + a.rope_dim
        positions = self.input("positions", self.batch.tokens * I32)
        compressed = self.matmul(a.kv_rank + a.rope_dim, x)
        normalized = self.norm(compressed.view, a.kv_rank)
        query_rope = self.op(a.heads * a.rope_dim, q.view, positions)
        key_rope = self.op(a.rope_dim, compressed.view, positions)
        kv = self.matmul(a.heads * (a.nope_dim + a.value_dim), normalized)
        value = self.op(a.heads * a.value_dim, kv.view)
        query = self.op(a.heads * key_dim, query_rope, q.view)
        key = self.op(a.heads * key_dim, kv.view, key_rope)
        self.store(key.view, self.cache_index("k index", None, 1))
        index_width = 1 if self.workload.flash_attention else a.heads * a.value_dim
        self.store(value.view, self.cache_index("v index", None, index_width))
        y = self.attend(query, a.heads, a.value_dim, None, (a.heads * key_dim, a.heads * a.value_dim))
        return self.matmul(self.model.hidden, y.view if self.workload.flash_attention else y)

    def compressed_attention(self, a: CompressedAttention, x: Tensor) -> Tensor:
        """DeepSeek V4, simplified: queries, the raw window and the compressed entries side by side."""
        q_width = a.heads * a.head_dim
        positions = self.input("positions", self.batch.tokens * I32)
        q = self.matmul(q_width, self.norm(self.matmul(a.query_rank, x), a.query_rank))
        q = self.op(q_width, self.norm(q.view, q_width), positions)
        key = self.norm(self.matmul(a.head_dim, x), a.head_dim)
        self.store(self.op(a.head_dim, key.view, positions), self.cache_index("k index", a.window, 1))
        cells = int(window_cells(a.window, self.workload, self.context))
        if a.ratio:
            cells += int(compressed_cells(a.ratio, self.workload, self.context))
        value = F16 if self.workload.flash_attention else F32
        mask = self.input("mask", cells * self.batch.tokens * value, a.ratio)
        keys = self.graph.add(cells * self.workload.parallel * a.head_dim * ggml_type(self.workload.kv_type_k).bytes)
        if self.workload.flash_attention:
            y = self.op(q_width, q.view, keys, mask)
        else:
            scores = self.inplace(self.op(a.heads * cells, q.view, keys), mask)
            y = self.op(q_width, keys.view, scores)
        y = self.op(q_width, y.view, positions)
        y = self.matmul(a.output_groups * a.output_rank, y.view)
        return self.matmul(self.model.hidden, y.view)

    # Recurrent mixers.

    def state(self, elements: int) -> Tensor:
        """Rows of a recurrent state gathered from the cache, for every sequence."""
        ids = self.input("state ids", self.batch.sequences * I32)
        rows = self.graph.add(elements * self.batch.sequences * F32, ids)
        self.store(rows.view)
        return rows

    def convolution(self, channels: int, kernel: int, x: Tensor) -> Tensor:
        """Causal convolution over time of a view of `x`, its state kept in the cache; returns the raw product."""
        state = self.state((kernel - 1) * channels)
        return self.convolve(state, channels, kernel, x)

    def convolve(self, state: Tensor, channels: int, kernel: int, x: Tensor) -> Tensor:
        extended = self.graph.add(
            (self.rows + (kernel - 1) * self.batch.sequences) * channels * F32, state.view, x.view
        )
        self.store(extended.view)
        return self.graph.add(self.bytes(channels), extended, device=self.device)

    def mamba1(self, m: Mamba, x: Tensor) -> View:
        state = self.state((m.conv - 1) * m.inner)
        xz = self.matmul(2 * m.inner, x)
        y = self.inplace(self.scale(self.convolve(state, m.inner, m.conv, xz)))
        x_db = self.matmul(m.dt_rank + 2 * m.state, y)
        if m.inner_norms:
            steps = self.norm(x_db.view, m.dt_rank)
            b, c = self.norm(x_db.view, m.state), self.norm(x_db.view, m.state)
            dt = self.scale(self.matmul(m.inner, steps))
            sources: list[Tensor | View] = [y.view, dt, b, c]
        else:
            dt = self.scale(self.matmul(m.inner, self.op(m.dt_rank, x_db.view)))
            sources = [y.view, dt, x_db.view, x_db.view]
        scan = self.scan(m, *sources)
        skipped = self.scale(y)
        gated = self.graph.add(self.bytes(m.inner), scan.view, skipped, inplace=True)
        gated = self.op(m.inner, self.op(m.inner, xz.view), gated)
        return self.matmul(self.model.hidden, gated).view

    def scan(self, m: Mamba, *sources: Tensor | View) -> Tensor:
        """Selective scan: outputs of all tokens and the new states of all sequences in one tensor."""
        ids = self.input("state ids", self.batch.sequences * I32)
        size = (self.rows * m.inner + m.state * m.inner * self.batch.sequences) * F32
        scan = self.graph.add(size, *sources, ids.view, device=self.device)
        self.store(scan.view)
        return scan

    def mamba2(self, m: Mamba, x: Tensor) -> View:
        channels = m.inner + 2 * m.groups * m.state
        state = self.state((m.conv - 1) * channels)
        zxbcdt = self.matmul(m.inner + channels + m.heads, x)
        y = self.inplace(self.scale(self.convolve(state, channels, m.conv, zxbcdt)))
        dt = self.scale(self.op(m.heads, zxbcdt.view))
        scan = self.scan(m, y.view, dt, y.view, y.view)
        skipped = self.graph.add(self.bytes(m.inner), y.view, device=self.device, inplace=True)
        out = self.graph.add(self.bytes(m.inner), scan.view, skipped, inplace=True)
        out = self.op(m.inner, self.op(m.inner, zxbcdt.view), out)
        if m.gated_norm:
            out = self.norm(out.view, m.inner)
        return self.matmul(self.model.hidden, out.view).view

    def delta_net(self, d: DeltaNet, x: Tensor) -> View:
        keys, inner = d.key_heads * d.key_dim, d.value_heads * d.value_dim
        state = self.state((d.conv - 1) * (2 * keys + inner))
        qkv = self.matmul(2 * keys + inner, x)
        memory = None
        extended = self.graph.add(
            (self.rows + (d.conv - 1) * self.batch.sequences) * (2 * keys + inner) * F32, state.view, qkv.view
        )
        self.store(extended.view)
        memory = self.state(d.key_dim * inner)
        y = self.inplace(self.graph.add(self.bytes(2 * keys + inner), extended, device=self.device))
        q = self.repeated_heads(d, y)
        k = self.repeated_heads(d, y)
        decay, rate = self.decay_and_rate(d, x)
        size = (self.rows + d.key_dim * self.batch.sequences) * inner * F32
        out = self.graph.add(size, q.view, k.view, y.view, decay.view, rate.view, memory.view)
        self.store(out.view)
        out = self.norm(out.view, inner)
        z = self.matmul(inner, x)
        opened = self.op(inner, z.view)
        out = self.inplace(out, opened)
        return self.matmul(self.model.hidden, out.view).view

    def repeated_heads(self, d: DeltaNet, y: Tensor) -> Tensor:
        """Q or K: normalised, and repeated for every value head."""
        width = d.key_heads * d.key_dim
        normalized = self.inplace(self.op(width, y.view))
        if d.value_heads == d.key_heads:
            return normalized
        return self.op(d.value_heads * d.key_dim, normalized.view)

    def decay_and_rate(self, d: DeltaNet, x: Tensor) -> tuple[Tensor, Tensor]:
        if d.fused_beta_alpha:
            both = self.matmul(2 * d.value_heads, x)
            a = self.op(d.value_heads, both.view)
            decay = self.scale(self.inplace(self.scale(a)))
            rate = self.inplace(self.op(d.value_heads, both.view))
            return decay, rate
        rate = self.op(d.value_heads, self.matmul(d.value_heads, x).view)
        alpha = self.matmul(d.value_heads, x)
        decay = self.scale(self.inplace(self.scale(self.op(d.value_heads, alpha.view))))
        return decay, rate

    def kimi_delta(self, d: KimiDelta, x: Tensor) -> Tensor:
        inner = d.heads * d.head_dim
        state = self.state(3 * (d.conv - 1) * inner)
        q, k, v = (self.inplace(self.convolve(state, inner, d.conv, self.matmul(inner, x))) for _ in range(3))
        decay = self.scale(self.matmul(inner, self.matmul(d.head_dim, x)))
        decay = self.scale(self.inplace(decay))
        rate = self.inplace(self.matmul(d.heads, x))
        memory = self.state(d.head_dim * inner)
        q, k = self.op(inner, q.view), self.op(inner, k.view)
        size = (self.rows + d.head_dim * self.batch.sequences) * inner * F32
        out = self.graph.add(size, q, k, v.view, decay.view, rate.view, memory.view)
        self.store(out.view)
        gate = self.matmul(inner, self.matmul(d.head_dim, x))
        out = self.norm(out.view, inner)
        out = self.inplace(out, self.op(inner, gate.view))
        return self.matmul(self.model.hidden, out.view)

    def short_conv(self, c: ShortConv, x: Tensor) -> View:
        hidden = self.model.hidden
        state = self.state((c.kernel - 1) * hidden)
        bcx = self.matmul(3 * hidden, x)
        bx = self.op(hidden, bcx.view, bcx.view)
        y = self.convolve(state, hidden, c.kernel, bx)
        y = self.graph.add(y.size, bcx.view, y, inplace=True)
        return self.matmul(hidden, y.view).view

    def rwkv7(self, r: Rwkv7, x: Tensor) -> Tensor:
        hidden = self.model.hidden
        shift = self.state(2 * hidden)
        previous = self.op(hidden, shift.view, x.view)
        delta = self.op(hidden, previous, x.view)
        mixed = self.graph.add(6 * self.bytes(hidden), delta, x, device=self.device)
        mixed = self.graph.add(mixed.size, mixed, x, inplace=True)
        receptance = self.matmul(hidden, mixed.view)
        decay = self.inplace(self.scale(self.matmul(hidden, self.inplace(self.matmul(r.decay_rank, mixed.view)))))
        k, v = self.matmul(hidden, mixed.view), self.matmul(hidden, mixed.view)
        gate = self.matmul(hidden, self.inplace(self.matmul(r.gate_rank, mixed.view)))
        rate = self.inplace(self.scale(self.matmul(hidden, self.matmul(r.rate_rank, mixed.view))))
        kk = self.op(hidden, self.scale(self.op(hidden, k)).view)
        k = self.inplace(k, rate)
        memory = self.state(hidden * r.head_dim)
        size = (self.rows + r.head_dim * self.batch.sequences) * hidden * F32
        out = self.graph.add(size, receptance.view, decay.view, k.view, v.view, kk, rate.view, memory.view)
        self.store(out.view)
        out = self.scale(self.norm(out.view, hidden))
        return self.matmul(hidden, self.inplace(out, gate))

    def lightning(self, a: LightningAttention, x: Tensor) -> Tensor:
        width = a.heads * a.head_dim
        qkv = self.inplace(self.matmul(3 * width, x))
        memory = self.state(a.head_dim * width)
        size = (self.rows + a.head_dim * self.batch.sequences) * width * F32
        out = self.graph.add(size, qkv.view, memory.view)
        self.store(out.view)
        out = self.norm(out.view, width)
        gate = self.inplace(self.matmul(width, x))
        return self.matmul(self.model.hidden, self.inplace(out, gate))

    # Feed-forward.

    def ffn(self, ffn: DenseFfn | MoeFfn, x: Tensor) -> Tensor:
        if isinstance(ffn, DenseFfn):
            return self.dense(ffn, x)
        y = self.experts(ffn, x)
        if ffn.shared_width:
            y = self.inplace(y, self.shared_expert(ffn, x))
        if ffn.dense is not None:
            y = self.inplace(y, self.dense(ffn.dense, x))
        return y

    def dense(self, ffn: DenseFfn, x: Tensor) -> Tensor:
        biased = self.scale if ffn.bias else (lambda y: y)
        if not ffn.gated:
            y = self.inplace(biased(self.matmul(ffn.width, x)))
        elif ffn.fused_gate_up:
            y = self.op(ffn.width, biased(self.matmul(2 * ffn.width, x)))
        else:
            gate, up = biased(self.matmul(ffn.width, x)), biased(self.matmul(ffn.width, x))
            y = self.op(ffn.width, gate, up)
        return biased(self.matmul(self.model.hidden, y))

    def shared_expert(self, ffn: MoeFfn, x: Tensor) -> Tensor:
        y = self.dense(DenseFfn(ffn.shared_width, ffn.gated), x)
        if not ffn.shared_gate:
            return y
        return self.inplace(y, self.inplace(self.matmul(1, x)))

    def experts(self, ffn: MoeFfn, x: Tensor) -> Tensor:
        chosen, weights = self.route(ffn, x)
        width = self.model.hidden
        if ffn.latent:
            x, width = self.matmul(ffn.latent, x), ffn.latent
        y = self.expert_hidden(ffn, x, chosen)
        y = self.expert_matmul(ffn, ffn.used * width, y, chosen)
        y = self.inplace(y, weights.view)
        total = self.op(width, *[y.view] * min(ffn.used, 2))
        for _ in range(ffn.used - 2):
            total = self.inplace(total, y.view)
        return self.matmul(self.model.hidden, total) if ffn.latent else total

    def expert_hidden(self, ffn: MoeFfn, x: Tensor, chosen: Tensor) -> Tensor:
        width = ffn.used * ffn.width
        if ffn.fused_gate_up:
            both = self.expert_matmul(ffn, 2 * width, x.view, chosen)
            return self.op(width, both.view, both.view)
        if not ffn.gated:
            return self.inplace(self.expert_matmul(ffn, width, x.view, chosen))
        gate, up = (self.expert_matmul(ffn, width, x.view, chosen) for _ in range(2))
        return self.op(width, gate, up)

    def expert_matmul(self, ffn: MoeFfn, width: int, x: Tensor | View, chosen: Tensor) -> Tensor:
        y = self.graph.add(self.bytes(width), x, chosen.view, device=self.expert_device)
        if not ffn.expert_bias:
            return y
        return self.graph.add(y.size, y, chosen.view, device=self.expert_device, inplace=True)

    def route(self, ffn: MoeFfn, x: Tensor) -> tuple[Tensor, Tensor]:
        """Indices of the chosen experts (sorted with all the others) and their weights."""
        scores = self.matmul(ffn.experts, x)
        if ffn.router_bias:
            scores = self.scale(scores)
        if self.model.architecture not in SOFTMAX_WEIGHT_ARCHITECTURES:
            scores = self.inplace(scores)
        ranked = self.graph.add(scores.size, scores, device=self.device) if ffn.selection_bias else scores
        order = self.op(ffn.experts, ranked)
        weights = self.op(ffn.used, scores.view, order.view)
        if self.model.architecture in SOFTMAX_WEIGHT_ARCHITECTURES:
            return order, self.op(ffn.used, weights.view)
        if self.model.architecture not in UNNORMALIZED_EXPERT_ARCHITECTURES:
            total = self.inplace(self.op(1, weights.view))
            weights = self.op(ffn.used, weights.view, total)
        return order, weights
