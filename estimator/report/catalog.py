"""One device or one model of the catalog as a page for the terminal."""

from __future__ import annotations

from collections import Counter
from string import ascii_letters

from ..architecture import Attention, LatentAttention, Layer, Model, MoeFfn
from ..conventions import runs_in_llama_cpp
from ..describe import attention_kind, ffn_kind, kv_bytes_per_token
from ..model_catalog import ModelInfo
from ..system import Device, Link
from ..tensors import active_params, total_params
from ..units import GB, GIB, gib
from .layout import Style, columns, paragraph

_PATHS = {
    "fp64": "FP64",
    "fp32": "FP32",
    "fp32_gpu": "FP32 of the GPU",
    "fp16": "FP16 vector",
    "fp16_matrix": "FP16 matrix, FP32 accumulate",
    "fp16_matrix_fp16_accumulate": "FP16 matrix, FP16 accumulate",
    "bf16_matrix": "BF16 matrix",
    "tf32_matrix": "TF32 matrix",
    "fp8_matrix": "FP8 matrix, FP32 accumulate",
    "fp8_matrix_fp16_accumulate": "FP8 matrix, FP16 accumulate",
    "int8_matrix": "INT8 matrix",
    "int8_dot": "INT8 dot product (dp4a)",
    "int4_matrix": "INT4 matrix",
    "fp4_matrix": "FP4 matrix",
    "bf16_cpu": "BF16",
    "int8_cpu": "INT8",
}


def device_page(device: Device, sources: bool, style: Style) -> list[str]:
    """Every known figure of a device; peaks are dense, with the formula of those that are derived."""
    lines = [style.paint(device.name, "bold"), style.paint(f"{device.id} · {device.vendor} {device.kind}", "dim"), ""]
    lines += columns(_facts(device), "<<")
    if device.peaks_flop_per_s:
        lines += ["", style.heading("Peaks, dense"), *columns(_peaks(device), "<><")]
    for title, texts in (("Notes", device.notes), ("Sources", device.sources if sources else ())):
        if texts:
            lines += ["", style.heading(title)]
            lines += [line for text in texts for line in paragraph(text, style.width, "  · ", "    ")]
    return lines


def _facts(d: Device) -> list[tuple[str, str]]:
    options = ", ".join(f"{size / GIB:.4g}" for size in d.memory_options_bytes)
    facts = [
        ("architecture", " · ".join(text for text in (d.architecture, d.isa, d.core_name) if text)),
        ("released", str(d.release_year or "")),
        ("memory", " ".join(text for text in (f"{options} GiB" if options else "", d.memory_type) if text)),
        ("bandwidth", f"{d.bandwidth_bytes_per_s / GB:,.5g} GB/s"),
        ("last-level cache", gib(d.cache_bytes) if d.cache_bytes else ""),
        ("cores", _cores(d)),
        ("clock", _clock(d)),
        ("SIMD", d.simd or ""),
        ("host link", _link(d.host_link)),
        ("peer link", _link(d.peer_link)),
        ("power", f"{d.power_watts:.4g} W" if d.power_watts else ""),
        ("price", f"about {d.price_usd:,.0f} USD at launch" if d.price_usd else ""),
        ("backends", ", ".join(d.backends) or "none in llama.cpp"),
        ("confidence", d.confidence or ""),
    ]
    return [fact for fact in facts if fact[1]]


def _cores(d: Device) -> str:
    if d.cores:
        return str(d.cores)
    return f"{d.units} units" + (f", {d.shader_cores:,} lanes" if d.shader_cores else "") if d.units else ""


def _clock(d: Device) -> str:
    parts = [
        f"{hertz / 1e9:.4g} GHz {name}" for hertz, name in ((d.base_hertz, "base"), (d.boost_hertz, "boost")) if hertz
    ]
    return ", ".join(parts)


def _link(link: Link | None) -> str:
    return f"{link.name}, {link.bandwidth_bytes_per_s / GB:.4g} GB/s one way" if link else ""


def _peaks(d: Device) -> list[tuple[str, str, str]]:
    return [
        (_PATHS.get(path, path), f"{peak / 1e12:,.4g} T{'OPS' if path.startswith('int') else 'FLOPS'}",
         f"= {d.derived_peaks[path]}" if path in d.derived_peaks else "published")
        for path, peak in d.peaks_flop_per_s.items()
    ]  # fmt: skip


def model_page(model: Model, info: ModelInfo | None, sources: bool, style: Style) -> list[str]:
    """Counts, cache and layers of a model."""
    lines = [style.paint(model.name, "bold")]
    lines += [style.paint(f"{model.id} · {', '.join(info.hugging_face)}" if info else model.id, "dim"), ""]
    lines += columns(_model_facts(model), "<<")
    lines += ["", style.heading("Layers"), *_layer_lines(model, style)]
    if info:
        for title, texts in (("Notes", info.notes), ("Sources", info.sources if sources else ())):
            if texts:
                lines += ["", style.heading(title)]
                lines += [line for text in texts for line in paragraph(text, style.width, "  · ", "    ")]
    return lines


def _model_facts(m: Model) -> list[tuple[str, str]]:
    total, active = total_params(m), active_params(m)
    drafts = total_params(m, drafts=True) - total
    every, beyond = kv_bytes_per_token(m), kv_bytes_per_token(m, all_layers=False)
    cache = f"{every / 1024:,.4g} KiB a token at F16"
    if beyond != every:
        cache += f" ({beyond / 1024:,.4g} KiB beyond the windows)"
    facts = [
        ("architecture", m.architecture + ("" if runs_in_llama_cpp(m.architecture) else " (llama.cpp cannot run it)")),
        ("parameters", f"{total:,}" + (f", {active:,} active" if active != total else "")),
        ("MTP layers", f"{drafts:,} parameters more" if drafts else ""),
        ("width", f"{m.hidden:,} hidden, {m.vocab:,} vocabulary" + (", tied" if m.tied_embeddings else "")),
        ("trained context", f"{m.max_context:,}" if m.max_context else ""),
        ("KV cache", cache),
    ]
    return [fact for fact in facts if fact[1]]


def _layer_lines(m: Model, style: Style) -> list[str]:
    """Each kind of layer once, with a letter where there are several, and the order in which the letters follow."""
    kinds = Counter(m.layers)
    letters = dict(zip(kinds, ascii_letters, strict=False)) if len(kinds) > 1 else {}
    rows = [
        (letters.get(layer, ""), f"{n} ×", " + ".join(map(_mixer, layer.mixers)) or "no mixer", _ffn(layer))
        for layer, n in kinds.items()
    ]
    lines = columns(rows, "<><<") if letters else columns([row[1:] for row in rows], "><<")
    order = "".join(letters.get(layer, "…") for layer in m.layers) if letters else ""
    return [*lines, *(f"  {order[i : i + style.width - 2]}" for i in range(0, len(order), style.width - 2))]


def _mixer(mixer: object) -> str:
    if isinstance(mixer, Attention):
        window = f", window {mixer.window:,}" if mixer.window else ""
        return f"{mixer.heads} heads, {mixer.kv_heads} KV × {mixer.key_dim}{window}"
    if isinstance(mixer, LatentAttention):
        return f"MLA, {mixer.heads} heads, latent {mixer.kv_rank} + {mixer.rope_dim}"
    return attention_kind(mixer)  # type: ignore[arg-type]


def _ffn(layer: Layer) -> str:
    if isinstance(layer.ffn, MoeFfn):
        shared = f" + shared {layer.ffn.shared_width:,}" if layer.ffn.shared_width else ""
        return f"{layer.ffn.used} of {layer.ffn.experts} experts × {layer.ffn.width:,}{shared}"
    return f"{ffn_kind(layer)} {layer.ffn.width:,}" if layer.ffn else "no feed-forward"
