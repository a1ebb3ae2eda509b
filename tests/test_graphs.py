"""The allocator on graphs small enough to follow by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmcalc.graphs.allocator import ALIGNMENT, Graph, Tensor, View, buffer_bytes
from llmcalc.placement import HOST


def add(graph: Graph, size: int, *sources: Tensor | View, device: int | None = None, inplace: bool = False) -> Tensor:
    """An operation, executed next."""
    tensor = Tensor(size, sources, device, inplace)
    graph.expand(tensor)
    return tensor


def test_operations_run_depth_first() -> None:
    graph = Graph()
    a = Tensor(32)
    b, c = Tensor(32, (a.view,)), Tensor(32, (a,))
    graph.expand(Tensor(32, (c, b)))
    assert graph.nodes[:3] == [a, c, b]


def test_a_tensor_is_freed_after_its_last_reader() -> None:
    graph = Graph()
    a = add(graph, 320, device=0)
    b = add(graph, 320, a)
    add(graph, 320, b)
    assert buffer_bytes(graph) == {0: 640}


def test_in_place_operations_take_no_memory() -> None:
    graph = Graph()
    a = add(graph, 320, device=0)
    b = add(graph, 320, a, inplace=True)
    add(graph, 320, b, inplace=True)
    assert buffer_bytes(graph) == {0: 320}


def test_a_view_or_a_second_reader_prevents_it() -> None:
    for extra_reader in (False, True):
        graph = Graph()
        a = add(graph, 320, device=0)
        add(graph, 320, a if extra_reader else a.view, inplace=True)
        if extra_reader:
            add(graph, 0, a)
        assert buffer_bytes(graph) == {0: 640}


def test_fragmentation_counts() -> None:
    graph = Graph()
    first, kept = add(graph, 320, device=0), add(graph, 320, device=0)
    add(graph, 0, first)  # frees the block before the kept one
    add(graph, 640, kept)  # does not fit there
    assert buffer_bytes(graph) == {0: 1280}


def test_the_smallest_block_that_fits_is_taken() -> None:
    graph = Graph()
    wide, fence, narrow, end = (add(graph, size, device=0) for size in (640, 32, 320, 32))
    add(graph, 0, wide, narrow)
    small = add(graph, 320, fence, end)  # into the 320 block
    add(graph, 640, small, fence, end)  # and the 640 block is still whole
    assert buffer_bytes(graph) == {0: 640 + 32 + 320 + 32}


def test_unweighted_operations_follow_devices_before_the_host() -> None:
    graph = Graph()
    x = add(graph, 320, device=HOST)
    y = add(graph, 320, x)  # next to the device below: runs there
    add(graph, 320, y, device=0)
    assert buffer_bytes(graph) == {HOST: 320, 0: 640}  # the copy of x, then the result in its place; y


def test_inputs_are_copied_once_to_each_device_and_four_times_in_a_pipeline() -> None:
    def graph() -> Graph:
        result = Graph()
        mask = result.input(3200)
        x = add(result, 32, device=HOST)
        for device in (0, 0, 1):
            x = add(result, 32, x, mask, device=device)
        return result

    single = buffer_bytes(graph())
    pipeline = buffer_bytes(graph(), copies=4)
    assert single[0] == 3200 + 32 * 2
    assert pipeline[0] >= 4 * (3200 + 32)
    assert pipeline[HOST] >= 4 * 3200


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 5), st.booleans()), min_size=1, max_size=40))
def test_the_buffer_is_between_the_live_bytes_and_their_sum(nodes: list[tuple[int, int, bool]]) -> None:
    graph = Graph()
    sizes = []
    for size, back, inplace in nodes:
        sources = graph.nodes[-1 - back : len(graph.nodes) - back] if back < len(graph.nodes) else []
        add(graph, size, *sources, device=0, inplace=inplace)
        sizes.append(-(-size // ALIGNMENT) * ALIGNMENT)
    assert max(sizes) <= buffer_bytes(graph)[0] <= sum(sizes)
