"""ggml's graph allocator and scheduler: how many bytes of each device a compute graph needs.

Rules of llama.cpp b11434. ggml/src/ggml-alloc.c: tensors are placed in execution order into the best-fitting free
block, an operation that may work in place takes over a source that nobody else reads, a tensor is freed after its last
reader; the buffer is as large as the highest address, fragmentation included. ggml/src/ggml-backend.cpp: operations run
where their weights are, others where their neighbours run; what a device reads from elsewhere is copied to it.
Sizes only: nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ..placement import HOST

ALIGNMENT: Final = 32  # of the CPU's buffers; CUDA's 128 changes totals by kilobytes
PIPELINE_COPIES: Final = 4  # GGML_SCHED_MAX_COPIES


class Tensor:
    """A node of the graph: `size` bytes, read by later nodes.

    `device`: where its weights or its cache are, None if it has neither. `sources` holds what it reads: a tensor, or
    the View of one. An empty tensor is placed like any other, and may leave a seam between free blocks.
    """

    __slots__ = (
        "address",
        "device",
        "external",
        "inplace",
        "is_filled",
        "is_input",
        "kept",
        "readers",
        "size",
        "sources",
        "visited",
    )

    def __init__(
        self, size: int, sources: Sequence[Tensor | View] = (), device: int | None = None, inplace: bool = False
    ) -> None:
        self.size = size
        self.sources = tuple(sources)
        self.device = device
        self.inplace = inplace  # may take over a source of its own size
        self.external = False  # writes into memory outside the graph
        self.is_input = False  # has no source: allocated before all nodes
        self.is_filled = False  # by the host, before the graph runs
        self.visited = False
        self.kept = False  # never freed
        self.readers = 0
        self.address = -1  # offset in its device's buffer; -1: not allocated

    @classmethod
    def write(cls, *sources: Tensor | View, device: int | None = None) -> Tensor:
        """An operation whose result is not in the buffer: a cache, or a view of a source."""
        tensor = cls(0, sources, device)
        tensor.external = True
        return tensor

    @classmethod
    def stored(cls, size: int, device: int) -> Tensor:
        """A part of a cache, outside the graph; other devices need a copy of it."""
        tensor = cls(size, device=device)
        tensor.external = tensor.visited = True
        return tensor

    @property
    def view(self) -> View:
        """The same memory under another shape: readable, but not to be taken over in place."""
        return View(self)


class View:
    """A reshaped, permuted or partial view of a tensor; `size` bytes where only a slice of it."""

    __slots__ = ("size", "tensor")

    def __init__(self, tensor: Tensor, size: int | None = None) -> None:
        self.tensor = tensor
        self.size = tensor.size if size is None else size


class Graph:
    """Inputs and nodes in execution order: depth first from each tensor that is asked for, like ggml's."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.nodes: list[Tensor] = []

    def input(self, size: int) -> Tensor:
        """A tensor filled by the host before the graph runs."""
        tensor = self.leaf(size, HOST)
        tensor.is_filled = True
        return tensor

    def leaf(self, size: int, device: int) -> Tensor:
        """A tensor without a source."""
        tensor = Tensor(size, device=device)
        tensor.is_input = True
        return tensor

    def expand(self, *targets: Tensor | View) -> None:
        """Append the targets, each after everything that it needs (ggml_build_forward_expand)."""
        for target in targets:
            self._visit(base(target))

    def _visit(self, tensor: Tensor) -> None:
        if tensor.visited:
            return
        tensor.visited = True
        for source in tensor.sources:
            self._visit(base(source))
        (self.inputs if tensor.is_input else self.nodes).append(tensor)


def base(source: Tensor | View) -> Tensor:
    """The tensor that owns the memory."""
    return source.tensor if isinstance(source, View) else source


def buffer_bytes(graph: Graph, copies: int = 1) -> dict[int, int]:
    """Bytes of the compute buffer of every device in the graph, HOST included.

    `copies`: PIPELINE_COPIES when several devices work as a pipeline, else 1.
    """
    _assign_devices(graph.nodes)
    nodes, pinned = _split(graph, copies)
    return _allocate(graph.inputs, pinned, nodes)


def _assign_devices(nodes: Sequence[Tensor]) -> None:
    """Give operations without weights the device of a neighbour: devices spread first, then the host."""
    for order in (nodes, nodes[::-1]):
        _spread(order, over_host=False)
    for order in (nodes, nodes[::-1]):
        _spread(order, over_host=True)


def _spread(nodes: Sequence[Tensor], over_host: bool) -> None:
    current: int | None = None
    for node in nodes:
        if node.device is None:
            node.device = current
        else:
            current = node.device if over_host or node.device != HOST else None


def _split(graph: Graph, copies: int) -> tuple[list[Tensor], list[Tensor]]:
    """Nodes with the copies between devices inserted, and the copies that are never freed.

    A run of nodes of one device is a split; what it reads from elsewhere is copied at its start, once per device. In a
    pipeline every input and every copy exists `copies` times, for as long as the context lives.
    """
    made: dict[tuple[int, int], Tensor] = {}
    result: list[Tensor] = []
    pinned: list[Tensor] = []
    for split in _runs(graph.nodes):
        device = split[0].device
        assert device is not None
        start: list[Tensor] = []
        for node in split:
            node.sources = tuple(_local(source, device, made, start) for source in node.sources)
        if copies > 1:
            for copy in start[1::2]:
                pinned += [copy, *(Tensor(copy.size, device=device) for _ in range(copies - 1))]
        result += start + split
    if copies > 1:
        filled = [tensor for tensor in graph.inputs if tensor.is_filled]
        pinned = [Tensor(tensor.size, device=HOST) for tensor in filled for _ in range(copies - 1)] + pinned
        for tensor in filled + pinned:
            tensor.kept = True
    return result, pinned


def _runs(nodes: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    run: list[Tensor] = []
    for node in nodes:
        if run and node.device != run[0].device:
            yield run
            run = []
        run.append(node)
    if run:
        yield run


def _local(
    source: Tensor | View, device: int, made: dict[tuple[int, int], Tensor], start: list[Tensor]
) -> Tensor | View:
    """`source` itself if it is on `device`, else its copy there, made at the start of the split if it is new.

    Every view is copied for itself, as far as it reaches.
    """
    if base(source).device == device:
        return source
    key = (id(source), device)
    if key not in made:
        made[key] = Tensor(source.size, device=device)
        # The source stays until the copy is there.
        start += [Tensor.write(source, device=base(source).device), made[key]]
    return made[key]


def _allocate(inputs: Sequence[Tensor], pinned: Sequence[Tensor], nodes: Sequence[Tensor]) -> dict[int, int]:
    buffers: dict[int, _FreeList] = {}
    for tensor in (*pinned, *inputs):
        _place(tensor, buffers)
    for node in nodes:
        for source in node.sources:
            base(source).readers += 1
    for node in nodes:
        if not node.external and node.address < 0:
            _place_node(node, buffers)
        for source in node.sources:
            tensor = base(source)
            tensor.readers -= 1
            if tensor.readers == 0 and tensor.address >= 0 and not tensor.kept:
                _buffer(tensor, buffers).release(tensor.address, tensor.size)
                tensor.address = -1
    return {device: buffer.peak for device, buffer in buffers.items()}


def _place_node(node: Tensor, buffers: dict[int, _FreeList]) -> None:
    if node.inplace:
        for source in node.sources:
            if isinstance(source, Tensor) and source.size == node.size and source.readers == 1 and source.address >= 0:
                if source.kept:
                    continue
                node.address, source.address = source.address, -1
                return
    _place(node, buffers)


def _place(tensor: Tensor, buffers: dict[int, _FreeList]) -> None:
    tensor.address = _buffer(tensor, buffers).take(tensor.size)


def _buffer(tensor: Tensor, buffers: dict[int, _FreeList]) -> _FreeList:
    assert tensor.device is not None
    return buffers.setdefault(tensor.device, _FreeList())


class _FreeList:
    """Free blocks of one buffer, by address; the last one has no end."""

    _ENDLESS = 1 << 62

    def __init__(self) -> None:
        self.blocks = [[0, self._ENDLESS]]  # [start, end]
        self.peak = 0

    def take(self, size: int) -> int:
        """Allocate: the smallest block that holds `size`, the later one of equals; the endless one only if need be."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        best, best_length = len(self.blocks) - 1, self._ENDLESS
        for i, (start, end) in enumerate(self.blocks[:-1]):
            if size <= end - start <= best_length:
                best, best_length = i, end - start
        block = self.blocks[best]
        address = block[0]
        block[0] += size
        if block[0] == block[1]:
            del self.blocks[best]
        self.peak = max(self.peak, address + size)
        return address

    def release(self, address: int, size: int) -> None:
        """Free, and merge with the first free neighbour found and the one beyond it, as ggml does."""
        end = address + -(-size // ALIGNMENT) * ALIGNMENT
        for i, block in enumerate(self.blocks):
            if block[1] == address:
                block[1] = end
                if i + 1 < len(self.blocks) and self.blocks[i + 1][0] == end:
                    block[1] = self.blocks.pop(i + 1)[1]
                return
            if block[0] == end:
                block[0] = address
                if i > 0 and self.blocks[i - 1][1] == address:
                    self.blocks[i - 1][1] = self.blocks.pop(i)[1]
                return
        i = sum(block[0] < address for block in self.blocks)
        self.blocks.insert(i, [address, end])
