"""Which backend and which devices ran a test, from what llama-bench prints about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .values import Malformed, optional_flag, optional_text, optional_whole, shown

# Booleans of builds before the `backends` field (until late 2024) and their backends.
_OLD_FLAGS: Final = {
    "cuda": "CUDA", "vulkan": "Vulkan", "metal": "Metal", "sycl": "SYCL", "kompute": "Kompute", "opencl": "OpenCL",
}  # fmt: skip
_NAMES: Final = {
    "cuda": "CUDA", "rocm": "ROCm", "hip": "ROCm", "hipblas": "ROCm", "cublas": "CUDA", "vulkan": "Vulkan",
    "metal": "Metal", "mtl": "Metal", "sycl": "SYCL", "opencl": "OpenCL", "cann": "CANN", "musa": "MUSA",
    "kompute": "Kompute", "htp": "HTP", "hexagon": "HTP", "webgpu": "WebGPU", "cpu": "CPU",
}  # fmt: skip
_HOST_HELPERS: Final = frozenset({"blas", "cpu", "zendnn", "accelerate", "openblas", "mkl", "amx", "rpc", "none"})
_AMD: Final = re.compile(r"\b(?:amd|radeon|gfx\d+|instinct)\b", re.IGNORECASE)


def backend(fields: Mapping[str, object]) -> str | None:
    """The backend that held the layers: CUDA, ROCm, Vulkan, Metal, CPU …; None where several could be meant."""
    names = _backend_names(fields)
    if names is None:
        return None
    if str(fields.get("devices") or "").strip().lower() == "none":
        return "CPU"
    accelerators = list(
        dict.fromkeys(_NAMES.get(name.lower(), name) for name in names if name.lower() not in _HOST_HELPERS)
    )
    if len(accelerators) > 1:
        accelerators = [name for name in accelerators if _used_by(name, fields)] or accelerators
    if len(accelerators) > 1:
        return None
    if accelerators == ["CUDA"] and _AMD.search(str(fields.get("gpu_info") or "")):
        return "ROCm"  # old HIP builds set the `cuda` flag
    if not accelerators and any(name.lower() == "rpc" for name in names):
        return "RPC"
    return accelerators[0] if accelerators else "CPU"


def _backend_names(fields: Mapping[str, object]) -> list[str] | None:
    text = optional_text(fields.get("backends"))
    if text:
        return [name.strip() for name in re.split(r"[,+/]", text) if name.strip()]
    flags = [name for flag, name in _OLD_FLAGS.items() if optional_flag(fields.get(flag), flag)]
    known = any(flag in fields for flag in (*_OLD_FLAGS, "blas", "gpu_blas"))
    return [*flags, "CPU"] if known else None


def _used_by(name: str, fields: Mapping[str, object]) -> bool:
    devices = str(fields.get("devices") or "").lower()
    return any(spelling in devices for spelling, canonical in _NAMES.items() if canonical == name)


def split_devices(text: str) -> tuple[str, ...]:
    """Names in a comma-joined list of devices."""
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def used_devices(fields: Mapping[str, object]) -> tuple[str, ...]:
    """Descriptions of the GPUs that the run used, of all that llama-bench listed."""
    listed = split_devices(optional_text(fields.get("gpu_info")) or "")
    if len(listed) < 2:
        return listed
    if str(fields.get("split_mode") or "").strip() == "none":
        return _pick(listed, [optional_whole(fields.get("main_gpu"), "main_gpu") or 0])
    indices = [int(index) for index in re.findall(r"[A-Za-z](\d{1,3})(?=$|[/,;+])", str(fields.get("devices") or ""))]
    if indices and max(indices) < len(listed):
        return _pick(listed, indices)
    shares = _shares(fields.get("tensor_split"))
    return _pick(listed, [index for index, share in enumerate(shares) if share > 0]) if any(shares) else listed


def _pick(listed: tuple[str, ...], indices: list[int]) -> tuple[str, ...]:
    if any(not 0 <= index < len(listed) for index in indices):
        raise Malformed(f"device {shown(max(indices))} is used, but only {len(listed)} are listed")
    return tuple(listed[index] for index in dict.fromkeys(indices))


def _shares(value: object) -> list[float]:
    try:
        return [float(share) for share in re.split(r"[/,;]", str(value or ""))]
    except ValueError:
        return []
