"""Building blocks of a compute graph: inputs, products, element-wise operations, norms, cache writes.

Only what matters for memory is here: sizes, readers, what may work in place, where weights are. Widths are values a
token; activations are F32. Operations are created first and ordered by `expand`, as in llama.cpp (b11434,
src/llama-graph.cpp), because the order decides how the buffer fragments.
"""

from __future__ import annotations

from typing import Final, Literal

from ..architecture import Attention, Model
from ..frozen_dataclass import dataclass
from ..kv_cache import as_run
from ..placement import HOST, Placement
from ..workload import Workload, minimum, padded
from .allocator import Graph, Tensor, View, base

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
MULTI_AXIS_ARCHITECTURES: Final = frozenset({"qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"})


@dataclass(frozen=True)
class Batch:
    """The micro-batch that buffers are reserved for."""

    tokens: int
    sequences: int
    outputs: int


def reserved_batch(workload: Workload, context: int) -> Batch:
    """Tokens, sequences and output rows of the graph that llama.cpp reserves for `context` configured tokens."""
    tokens = minimum(workload.cells_per_stream(context) * workload.streams, workload.ubatch_tokens(context))
    outputs = tokens if workload.all_logits else min(tokens, workload.parallel)
    return Batch(padded(tokens, workload.parallel), workload.parallel, outputs)


class GraphBuilder:
    """Creates operations for one model and one micro-batch, on the devices of the current layer."""

    def __init__(
        self, model: Model, placement: Placement, workload: Workload, context: int, build: Build, scratch: bool
    ) -> None:
        self.model = model
        self.placement = placement
        self.workload = workload = as_run(model, workload)
        self.context = context
        self.build: Build = build
        self.scratch = scratch
        self.batch = reserved_batch(workload, context)
        self.rows = self.batch.tokens  # rows of the residual stream: outputs only, at the end
        self.graph = Graph()
        self.inputs: dict[tuple[str, int], Tensor] = {}
        self.device = self.expert_device = self.dense_device = self.cache_device = HOST
        self.written: dict[int, int] = {}  # device of the last layer that wrote to its cache, by window
        self.whole_mask: Tensor | None = None  # the attention mask in F32
        self.state_views: dict[int, View] = {}
        self.selected: Tensor | None = None  # positions that the last indexer chose
        self.norm_inplace = model.architecture not in LAYER_NORM_ARCHITECTURES
        attention = [mixer for layer in model.layers for mixer in layer.mixers if isinstance(mixer, Attention)]
        self.windowed = any(mixer.window for mixer in attention)
        self.value_width = max((mixer.kv_heads * mixer.value_dim for mixer in attention), default=0)

    def enter_layer(self, index: int) -> None:
        """Go on with the devices of a layer."""
        self.device = self.placement.slots[index]
        self.expert_device = self.placement.expert_device(index)
        self.dense_device = self.placement.dense_device(index)
        self.cache_device = self.placement.cache_device(index)

    def enter_output(self) -> None:
        """Go on with the device of the output matrix."""
        self.device = self.placement.output

    def input(self, name: str, size: int, key: int = 0) -> Tensor:
        """An input, created at its first use; `key` tells inputs of one name apart."""
        if (name, key) not in self.inputs:
            self.inputs[name, key] = self.graph.input(size)
        return self.inputs[name, key]

    def leaf(self, size: int) -> Tensor:
        """A tensor without a source on the current device, allocated before everything else."""
        return self.graph.leaf(size, self.device)

    def positions(self) -> Tensor:
        """Token positions, for RoPE; four a token where images have their own axes."""
        axes = 4 if self.model.architecture in MULTI_AXIS_ARCHITECTURES else 1
        return self.input("positions", axes * self.batch.tokens * I32)

    def state_ids(self) -> Tensor:
        """Cells of the recurrent states of the batch."""
        return self.input("state ids", self.batch.sequences * I32)

    def some_state_ids(self, count: int) -> View:
        """The first or the last of them; the same view for all layers."""
        return self.state_views.setdefault(count, View(self.state_ids(), count * I32))

    def expand(self, *targets: Tensor | View) -> None:
        """Order the targets and what they need next."""
        self.graph.expand(*targets)

    def bytes(self, width: int) -> int:
        """Bytes of `width` F32 values for every row."""
        return width * self.rows * F32

    def raw(self, size: int, *sources: Tensor | View) -> Tensor:
        """An operation without weights, of a size in bytes."""
        return Tensor(size, sources)

    def op(self, width: int, *sources: Tensor | View) -> Tensor:
        """An operation without weights, with a result of its own."""
        return Tensor(self.bytes(width), sources)

    def matmul(self, width: int, *sources: Tensor | View) -> Tensor:
        """An operation with a weight matrix."""
        return Tensor(self.bytes(width), sources, self.device)

    def inplace(self, *sources: Tensor | View) -> Tensor:
        """An element-wise operation without weights, in the memory of a source of the first's size if one is free."""
        return Tensor(base(sources[0]).size, sources, inplace=True)

    def scale(self, *sources: Tensor | View) -> Tensor:
        """An element-wise operation with a weight vector."""
        return Tensor(base(sources[0]).size, sources, self.device, inplace=True)

    def norm(self, x: Tensor | View, width: int) -> Tensor:
        """Normalise, then scale by weights."""
        return self.scale(Tensor(self.bytes(width), (x,), inplace=self.norm_inplace))

    def columns(self, x: Tensor, width: int) -> View:
        """Some columns of every row: from the first to the last value."""
        return View(x, x.size - (x.size // self.rows - width * F32))

    def store(self, *sources: Tensor | View) -> None:
        """Write into the layer's cache, now."""
        self.expand(Tensor.write(*sources, device=self.cache_device))

    def select_outputs(self, x: Tensor | View) -> Tensor:
        """Keep only the rows whose logits are wanted."""
        ids = self.input("outputs", self.batch.outputs * I32)
        self.rows = self.batch.outputs
        return self.op(self.model.hidden, x, ids)
