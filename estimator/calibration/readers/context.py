"""What log lines around a benchmark say of machine, model and settings, kept until the next load.

Lines of llama.cpp since 2023, whatever stands before them (time stamps, levels). A run takes from here what its own
record does not say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from .values import Malformed, parameters, size_bytes

MAX_LINE: Final = 4000  # of a log line; longer ones are not looked at

Update = Callable[["Context", "re.Match[str]"], None]


class Context:
    """Facts from log lines, by llama-bench's field names."""

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        self._gpus: dict[int, str] = {}
        self._label: dict[str, str] = {}
        self._buffers: set[str] = set()

    def read(self, line: str) -> bool:
        """Take what `line` says; False when it says nothing known."""
        if len(line) > MAX_LINE:
            return False
        for marker, pattern, update in _LINES:
            match = pattern.search(line) if marker in line else None
            if match:
                update(self, match)
                return True
        return False

    def known(self) -> dict[str, object]:
        """The fields, with devices and label put together."""
        fields = dict(self.fields)
        if self._gpus:
            fields["gpu_info"] = ", ".join(self._gpus.values())
        if "backends" not in fields and self._buffers:
            fields["backends"] = ",".join(sorted(self._buffers))
        if "arch" in self._label:
            fields["architecture"] = self._label["arch"]
            fields["model_type"] = " ".join(
                self._label[part] for part in ("arch", "type", "ftype") if part in self._label
            )
        return fields

    def set(self, **fields: object) -> None:
        """Keep `fields`."""
        self.fields.update(fields)

    def new_model(self, path: str) -> None:
        """A model is being loaded: nothing said about another one holds any more."""
        if self.fields.get("model_filename") == path:
            return
        for name in ("model_size", "model_n_params", "n_gpu_layers", "partly_offloaded"):
            self.fields.pop(name, None)
        self._label.clear()
        self._buffers.clear()
        self.set(model_filename=path)

    def new_devices(self, backend: str) -> None:
        """A backend starts to list its devices."""
        self._gpus.clear()
        self.set(backends=backend)

    def device(self, index: int, name: str) -> None:
        """Device `index` is called `name`."""
        if index == 0:
            self._gpus.clear()
        if len(self._gpus) < 64:
            self._gpus[index] = name.strip()

    def end_of_run(self) -> None:
        """llama-bench is done: what follows may have run on another device."""
        self._gpus.clear()
        self.fields.pop("backends", None)

    def label(self, part: str, text: str) -> None:
        """A part of what llama-bench prints as the model's type: arch, type, ftype."""
        self._label[part] = text.strip()

    def buffer(self, name: str) -> None:
        """Weights lie in a buffer of this backend."""
        self._buffers.add("CPU" if name.startswith("CPU") else re.split(r"[\d_]", name, maxsplit=1)[0])


def _quantity(name: str, parse: Callable[[str], float | None]) -> Update:
    def update(context: Context, match: re.Match[str]) -> None:
        with suppress(Malformed):  # a log line is no record: what cannot be read is not known
            context.set(**{name: parse(match[1])})

    return update


def _field(name: str) -> Update:
    return lambda context, match: context.set(**{name: match[1]})


def _part(name: str) -> Update:
    return lambda context, match: context.label(name, match[1])


def _device_of(backend: str) -> Update:
    def update(context: Context, match: re.Match[str]) -> None:
        context.set(backends=backend)
        context.device(int(match[1]), match[2])

    return update


def _metal_device(context: Context, match: re.Match[str]) -> None:
    context.new_devices("Metal")
    context.device(0, match[1])


def _device_in_use(context: Context, match: re.Match[str]) -> None:
    context.set(backends=match[1])
    context.device(int(match[2] or 0), match[3])


def _build(context: Context, match: re.Match[str]) -> None:
    context.set(build_number=match[1], build_commit=match[2])


def _offloaded(context: Context, match: re.Match[str]) -> None:
    context.set(n_gpu_layers=match[1], partly_offloaded=int(match[1]) < int(match[2]))


def _cache_types(context: Context, match: re.Match[str]) -> None:
    context.set(type_k=match[1], type_v=match[2])


_CONTEXT: Final = r"(?:llama_context|llama_new_context_with_model|llama_init_from_model): "

# Marker that must be in the line, pattern, what it tells. The first pattern that matches counts.
_LINES: Final[tuple[tuple[str, re.Pattern[str], Update], ...]] = (
    ("devices", re.compile(r"ggml_(?:cuda_)?\w{0,20}: found (?:\d+) (CUDA|ROCm|MUSA) devices"),
     lambda context, match: context.new_devices(match[1])),
    ("Found", re.compile(r"ggml_vulkan: Found \d+ (Vulkan) devices"),
     lambda context, match: context.new_devices(match[1])),
    ("Device ", re.compile(r"^\W{0,40}\bDevice (\d{1,2}): ([^,|]{2,100}),"),
     lambda context, match: context.device(int(match[1]), match[2])),
    ("ulkan", re.compile(r"(?:ggml_vulkan: |Vulkan)(\d{1,2})(?: =|:) ([^|]{2,120}?)(?: \([\w .-]{1,40}\))? \|"),
     _device_of("Vulkan")),
    ("metal", re.compile(r"ggml_metal\w{0,20}: (?:found device|GPU name): +(?!MTL)(.{2,80})"),
     _metal_device),
    ("level_zero", re.compile(r"\| *(\d{1,2})\| *\[level_zero:gpu[^|]{0,8}\| *([^|]{2,80}?) *\|"),
     _device_of("SYCL")),
    ("using device",
     re.compile(r"using device ([A-Za-z]{2,10})(\d{1,2})? \(([^()]{2,80}(?:\([^()]{0,60}\)[^()]{0,60})?)\)"),
     _device_in_use),
    ("odel name", re.compile(r"^\s{0,8}[Mm]odel name\s{0,40}:\s{0,40}(\S.{1,100})"), _field("cpu_info")),
    ("build", re.compile(r"\bbuild(?: ?: ?| = )(\d{1,6}) \(([0-9a-f]{6,40})\)(?: with| for|$)"), _build),
    ("meta data", re.compile(r"loaded meta data .{0,80}? from (.{1,500}?) \(version"),
     lambda context, match: context.new_model(match[1])),
    ("loading model", re.compile(r"load_model: loading model '(.{1,500}?)'"),
     lambda context, match: context.new_model(match[1])),
    ("arch", re.compile(r"print_\w{0,5}info: arch {1,20}= ([\w.-]{1,40})"), _part("arch")),
    ("arch", re.compile(r"print_meta: arch {1,20}= ([\w.-]{1,40})"), _part("arch")),
    ("model type", re.compile(r"print_\w{4}: model type {1,20}= ([\w.()?+ -]{1,40})"), _part("type")),
    ("type", re.compile(r"print_\w{4}: (?:file type|model ftype) {1,20}= (.{1,60})"), _part("ftype")),
    ("model params", re.compile(r"print_\w{4}: model params {1,20}= ([\d.]+ [KMBT]?)"),
     _quantity("model_n_params", parameters)),
    ("size", re.compile(r"print_\w{4}: (?:file|model) size {1,20}= ([\d.]{1,12} [KMG]iB)"),
     _quantity("model_size", size_bytes)),
    ("offloaded", re.compile(r"offloaded (\d{1,5})/(\d{1,5}) layers to GPU"), _offloaded),
    ("buffer size", re.compile(r"load_tensors: +([A-Za-z]{2,10}\w{0,20}) +model buffer size"),
     lambda context, match: context.buffer(match[1])),
    ("n_ubatch", re.compile(_CONTEXT + r"n_ubatch {1,20}= (\d{1,9})"),
     _field("n_ubatch")),
    ("n_batch", re.compile(_CONTEXT + r"n_batch {1,20}= (\d{1,9})"),
     _field("n_batch")),
    ("flash_attn", re.compile(_CONTEXT + r"flash_attn {1,20}= "
                              r"(0|1|auto|enabled|disabled)"), _field("flash_attn")),
    ("K (", re.compile(r"K \((\w{1,10})\):.{0,40}V \((\w{1,10})\):"), _cache_types),
    ("system_info", re.compile(r"system_info: n_threads = (\d{1,5})\b"), _field("n_threads")),
)  # fmt: skip
