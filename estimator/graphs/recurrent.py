"""Recurrent mixers as graph operations: state spaces, delta rules, convolutions, linear attention.

After llama.cpp b11434, src/models (mamba-base, delta-net-base, qwen3next, qwen35, kimi-linear, lfm2, rwkv7, minimax-01)
and build_rs of src/llama-graph.cpp.
"""

from __future__ import annotations

from ..architecture import DeltaNet, KimiDelta, LightningAttention, Mamba, Rwkv7, ShortConv
from .allocator import Tensor, View
from .builder import F32, GraphBuilder


def state(g: GraphBuilder, elements: int) -> View:
    """Rows of a recurrent state gathered from the cache, for every sequence."""
    g.store()  # clears a state
    rows = g.raw(elements * g.batch.sequences * F32, g.state_ids())
    g.store(rows.view)
    return rows.view


def extended(g: GraphBuilder, channels: int, kernel: int, past: View, x: Tensor | View) -> Tensor:
    """The inputs of a causal convolution: the tokens of each sequence after the last ones before them."""
    rows = g.rows + (kernel - 1) * g.batch.sequences
    result = g.raw(rows * channels * F32, past, x)
    g.store(result.view)
    return result


def short_conv(g: GraphBuilder, c: ShortConv, x: Tensor) -> View:
    """Gated short convolution of LFM2."""
    hidden = g.model.hidden
    bcx = g.matmul(3 * hidden, x.view)
    product = g.op(hidden, bcx.view, bcx.view)
    past = state(g, (c.kernel - 1) * hidden)
    convolved = g.matmul(hidden, extended(g, hidden, c.kernel, past, product.view))
    return g.matmul(hidden, Tensor(convolved.size, (bcx.view, convolved), inplace=True)).view


def mamba(g: GraphBuilder, m: Mamba, x: Tensor) -> Tensor | View:
    """State space layer of version 1 or 2."""
    channels = m.inner + 2 * m.groups * m.state
    past = state(g, (m.conv - 1) * channels)
    wide = g.matmul(2 * m.inner if m.version == 1 else m.inner + channels + m.heads, x)
    y = g.inplace(g.scale(g.matmul(channels, extended(g, channels, m.conv, past, g.columns(wide, channels)))))
    if m.version == 1:
        return g.matmul(g.model.hidden, _scan1(g, m, y, wide)).view
    return g.matmul(g.model.hidden, _scan2(g, m, y, wide))


def _scan1(g: GraphBuilder, m: Mamba, y: Tensor, xz: Tensor) -> Tensor:
    x_db = g.matmul(m.dt_rank + 2 * m.state, y)
    b: Tensor | View = x_db.view
    c: Tensor | View = x_db.view
    if m.inner_norms:
        steps = g.norm(x_db.view, m.dt_rank)
        b, c = g.norm(x_db.view, m.state), g.norm(x_db.view, m.state)
    else:
        steps = g.op(m.dt_rank, x_db.view)
    dt = g.scale(g.matmul(m.inner, steps))
    scanned = _scan(g, m, y.view, dt, b, c)
    total = _add_skip(g, m, scanned, g.scale(y))
    return g.op(m.inner, g.op(m.inner, g.columns(xz, m.inner)), total)


def _scan2(g: GraphBuilder, m: Mamba, y: Tensor, zxbcdt: Tensor) -> Tensor | View:
    dt = g.scale(g.op(m.heads, g.columns(zxbcdt, m.heads)))
    scanned = _scan(g, m, y.view, dt, y.view, y.view)
    skip = Tensor(g.bytes(m.inner), (y.view,), g.device, inplace=True)
    out = g.op(m.inner, g.op(m.inner, g.columns(zxbcdt, m.inner)), _add_skip(g, m, scanned, skip))
    return g.norm(out.view, m.inner).view if m.gated_norm else out.view


def _add_skip(g: GraphBuilder, m: Mamba, scanned: Tensor, skip: Tensor) -> Tensor:
    return Tensor(g.bytes(m.inner), (scanned.view, skip), inplace=True)


def _scan(g: GraphBuilder, m: Mamba, *sources: Tensor | View) -> Tensor:
    """Selective scan: outputs of all tokens and the new states of all sequences in one tensor."""
    elements = m.state * m.inner
    size = (g.rows * m.inner + elements * g.batch.sequences) * F32
    g.store()  # clears a state
    scanned = Tensor(size, (*sources, g.some_state_ids(g.batch.sequences)), g.device)
    g.expand(scanned)
    others = g.batch.sequences - 1  # states that the batch does not change: perhaps none
    g.store(g.raw(elements * others * F32, g.some_state_ids(others)).view)
    g.store(scanned.view)
    return scanned


def delta_net(g: GraphBuilder, d: DeltaNet, x: Tensor) -> View:
    """Gated DeltaNet."""
    keys, inner = d.key_heads * d.key_dim, d.value_heads * d.value_dim
    channels = 2 * keys + inner
    past = state(g, (d.conv - 1) * channels)
    mixed = extended(g, channels, d.conv, past, g.matmul(channels, x).view)
    memory = state(g, d.key_dim * inner)
    y = g.inplace(g.matmul(channels, mixed))
    q, k = _normalized_heads(g, d, y), _normalized_heads(g, d, y)
    decay, rate = _decay_and_rate(g, d, x)
    out = delta_rule(g, inner, d.key_dim, q.view, k.view, y.view, decay.view, rate.view, memory)
    opened = g.op(inner, g.matmul(inner, x).view)
    return g.matmul(g.model.hidden, g.inplace(g.norm(out.view, inner), opened).view).view


def _normalized_heads(g: GraphBuilder, d: DeltaNet, y: Tensor) -> Tensor:
    """Q or K: normalised, and in Qwen3-Next repeated for every value head."""
    normalized = g.inplace(g.op(d.key_heads * d.key_dim, y.view))
    if d.value_heads == d.key_heads or not d.fused_beta_alpha:
        return normalized
    return g.op(d.value_heads * d.key_dim, normalized.view)


def _decay_and_rate(g: GraphBuilder, d: DeltaNet, x: Tensor) -> tuple[Tensor, Tensor]:
    if d.fused_beta_alpha:
        both = g.matmul(2 * d.value_heads, x)
        decay = g.op(d.value_heads, both.view)
        return g.scale(g.inplace(g.scale(decay))), g.inplace(g.op(d.value_heads, both.view))
    alpha, beta = g.matmul(d.value_heads, x), g.matmul(d.value_heads, x)
    decay = g.scale(g.inplace(g.scale(alpha.view)))
    return decay, g.inplace(beta.view)


def delta_rule(g: GraphBuilder, inner: int, key_dim: int, *sources: Tensor | View) -> Tensor:
    """The recurrence: outputs of all tokens and the new states of all sequences in one tensor."""
    out = g.raw((g.rows + key_dim * g.batch.sequences) * inner * F32, *sources)
    g.store(out.view)
    return out


def kimi_delta(g: GraphBuilder, d: KimiDelta, x: Tensor) -> Tensor:
    """Kimi delta attention."""
    inner = d.heads * d.head_dim
    past = state(g, 3 * (d.conv - 1) * inner)
    q, k, v = (
        g.inplace(g.matmul(inner, extended(g, inner, d.conv, past, g.matmul(inner, x).view)).view) for _ in range(3)
    )
    decay = g.inplace(g.scale(g.matmul(inner, g.matmul(d.head_dim, x))))
    decay = g.scale(decay.view)
    rate = g.inplace(g.matmul(d.heads, x).view)
    memory = state(g, d.head_dim * inner)
    q, k = (g.inplace(g.op(inner, y.view)) for y in (q, k))
    result = g.raw((g.rows + d.head_dim * g.batch.sequences) * inner * F32, q, k, v.view, decay.view, rate, memory)
    out = g.op(inner, result.view)
    if not d.full_rank_gate:
        g.expand(out)
    g.store(result.view)
    low_rank = x.view if d.full_rank_gate else g.matmul(d.head_dim, x.view)
    gate = g.inplace(g.matmul(inner, low_rank).view)
    gated = g.inplace(g.norm(out.view, inner), gate)
    return g.matmul(g.model.hidden, g.op(inner, gated))


def rwkv7(g: GraphBuilder, r: Rwkv7, x: Tensor, previous: Tensor, first_value: Tensor | None) -> tuple[Tensor, Tensor]:
    """RWKV-7 time mixing of normalised `x`; also the values of the first layer, which later layers mix in."""
    hidden = g.model.hidden
    delta = g.raw(6 * g.bytes(hidden), g.inplace(previous, x))
    mixed = g.inplace(g.scale(delta), x)
    receptance = g.matmul(hidden, mixed.view)
    decay = g.scale(g.matmul(hidden, g.inplace(g.matmul(r.decay_rank, mixed.view))))
    decay = g.inplace(g.inplace(g.inplace(decay)))
    k, v = g.matmul(hidden, mixed.view), g.matmul(hidden, mixed.view)
    if first_value is not None:
        share = g.inplace(g.scale(g.matmul(hidden, g.matmul(r.value_rank, mixed.view))))
        v = g.inplace(v, g.inplace(g.inplace(first_value, v), share))
    gate = g.matmul(hidden, g.inplace(g.matmul(r.gate_rank, mixed.view)))
    rate = g.inplace(g.scale(g.matmul(hidden, g.matmul(r.rate_rank, mixed.view))))
    kk = g.op(hidden, g.scale(k).view)
    scaled = g.scale(k)
    k = g.inplace(k, g.inplace(g.inplace(rate, scaled), scaled))
    memory = state(g, hidden * r.head_dim)
    sources = (receptance.view, decay.view, k.view, v.view, g.inplace(kk), g.inplace(kk, rate.view), memory)
    out = g.raw((g.rows + r.head_dim * g.batch.sequences) * hidden * F32, *sources)
    g.store(out.view)
    y = g.scale(g.scale(Tensor(g.bytes(hidden), (out.view,)).view))
    bonus = g.op(hidden // r.head_dim, g.scale(g.inplace(k.view, receptance.view)))
    y = g.inplace(y, g.inplace(v.view, bonus).view)
    return g.matmul(hidden, g.inplace(y, gate)), v if first_value is None else first_value


def lightning(g: GraphBuilder, a: LightningAttention, x: Tensor) -> Tensor | View:
    """Linear attention of MiniMax-Text-01: a recurrence over blocks, and full scores within the micro-batch."""
    width, tokens, sequences = a.heads * a.head_dim, g.rows // g.batch.sequences, g.batch.sequences
    state(g, 0)  # of a convolution that it does not have
    qkv = g.inplace(g.matmul(3 * width, x.view))
    part = View(qkv, qkv.size - 2 * a.head_dim * F32)  # Q, K and V alternate by head
    memory = state(g, a.head_dim * width)

    def decay(name: str, size: int) -> Tensor:
        return g.inplace(g.inplace(g.input(name, size)))

    earlier = g.op(width, memory, g.op(width, part, decay("query decay", g.bytes(a.heads))).view)
    values = g.op(width, part)
    scores = g.raw(tokens * tokens * a.heads * sequences * F32, part, part)
    scores = g.inplace(scores, decay("diagonal decay", scores.size))
    out = g.inplace(earlier, g.op(width, values, scores))
    g.expand(out)
    block = g.inplace(g.inplace(g.inplace(g.input("slopes", a.heads * F32))))
    old = g.raw(memory.tensor.size, memory, block.view)
    keys = g.op(width, g.op(width, part, decay("key decay", g.bytes(a.heads))).view)
    g.store(g.inplace(old, g.raw(memory.tensor.size, keys, values)))
    normed = g.norm(g.op(width, out.view).view, width)
    gate = g.inplace(g.matmul(width, x.view))
    return g.matmul(g.model.hidden, g.inplace(gate, normed)).view
