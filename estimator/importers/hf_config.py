"""Hugging Face config.json files to Models, and what their quantization_config says about the checkpoint's bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..architecture import Model
from ..errors import InputError
from ..field_reader import FieldReader
from ..model_fields import model_from_fields
from .hf_fields import architecture_of, fields_from_config
from .hf_writer import write_config

__all__ = ["CheckpointQuantization", "read_config", "read_quantization", "write_config"]

MAX_BYTES: Final = 4 * 2**20
MAX_DEPTH: Final = 32
TEXT_PARTS: Final = ("text_config", "llm_config", "language_config")
"""Keys under which multimodal models keep the configuration of the language model."""

Source = str | Path | Mapping[str, Any]


@dataclass(frozen=True)
class CheckpointQuantization:
    """How the weights of a checkpoint are stored. The matrices of `kept_modules` stay in 16 bits."""

    method: str  # fp8, mxfp4, nvfp4, awq, gptq, bitsandbytes
    bits_per_weight: float  # with the scales and zero points of each group
    group_size: int | None  # weights that share a scale; None: one for the whole tensor
    kept_modules: tuple[str, ...] = ()

    def bytes_of(self, elements: int) -> float:
        """Bytes that a quantised matrix of `elements` values takes in the checkpoint."""
        return elements * self.bits_per_weight / 8


def read_config(source: Source) -> Model:
    """The Model that a config.json describes; `source` is its path, its folder's path, or its parsed content.

    Vision and audio parts are left out. Raises InputError, naming file and key, for a file that cannot be read, is too
    large, no JSON or nested absurdly, for values of a wrong type or size, and for an architecture that is not known.
    """
    config, where = _load(source)
    text = _text_part(config, where)
    architecture = architecture_of(text)
    fields = fields_from_config(text, architecture)
    return replace(model_from_fields(_name(text, where), fields, where), name=_name(text, where))


def read_quantization(source: Source) -> CheckpointQuantization | None:
    """What the quantization_config of a config.json means for the checkpoint's bytes; None without one.

    Raises InputError for a method that is not known.
    """
    config, where = _load(source)
    text = _text_part(config, where)
    found = text.fields.get("quantization_config")
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise text.fail("quantization_config", "expected a mapping")
    return _quantization(FieldReader(found, f"{where}: quantization_config", found))


def _name(text: FieldReader, where: str) -> str:
    name = text.fields.get("_name_or_path")
    return name if isinstance(name, str) and name else where


def _load(source: Source) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, Mapping):
        _refuse_deep(source, "config")
        return source, "config"
    path = Path(source)
    if os.path.isdir(path):
        path = path / "config.json"
    content = _parse(_read(path), str(path))
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object, got {type(content).__name__}")
    _refuse_deep(content, str(path))
    return content, str(path)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 2**20} MiB, which no configuration needs")
    return data


def _parse(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except RecursionError:
        raise InputError(f"{where}: nested too deeply") from None
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise InputError(f"{where}: not JSON: {str(error)[:200]}") from None


def _refuse_deep(content: Any, where: str) -> None:
    level: list[Any] = [content]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _contents(outer)]
        if not level:
            return
    raise InputError(f"{where}: nested more than {MAX_DEPTH} levels deep")


def _contents(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, (Mapping, list))]


def _text_part(config: Mapping[str, Any], where: str) -> FieldReader:
    """The keys of the language model over those of the whole, as llama.cpp's converter merges them."""
    merged = dict(config)
    for key in TEXT_PARTS:
        if isinstance(config.get(key), Mapping):
            merged |= {name: value for name, value in config[key].items() if value is not None}
    classes = [config.get("architectures"), merged.get("architectures")]  # the whole model's first
    merged["architectures"] = [name for names in classes if isinstance(names, list) for name in names]
    return FieldReader(merged, where, merged)


# Quantisation


def _quantization(config: FieldReader) -> CheckpointQuantization:
    method = config.text("quant_method", "").lower() or config.text("quant_algo", "").lower()
    kept = config.fields.get("modules_to_not_convert") or config.fields.get("ignore") or ()
    modules = tuple(map(str, kept)) if isinstance(kept, list) else ()
    if method in ("compressed-tensors", "modelopt", "nvfp4"):
        return replace(_grouped(config, method), kept_modules=modules)
    readers = {"fp8": _fp8, "fbgemm_fp8": _fp8, "mxfp4": _mxfp4, "awq": _integers, "gptq": _integers,
               "bitsandbytes": _bitsandbytes}  # fmt: skip
    if method not in readers:
        raise config.fail("quant_method", f"unknown method {method[:40]!r}; known are {', '.join(readers)}")
    return replace(readers[method](config), kept_modules=modules)


def _fp8(config: FieldReader) -> CheckpointQuantization:
    """One byte a weight; with weight_block_size an F32 scale for each block, else one for each tensor."""
    block = config.integers("weight_block_size")
    if not block:
        return CheckpointQuantization("fp8", 8.0, None)
    if len(block) != 2 or 0 in block:
        raise config.fail("weight_block_size", "expected two sizes")
    group = block[0] * block[1]
    return CheckpointQuantization("fp8", 8 + 32 / group, group)


def _mxfp4(config: FieldReader) -> CheckpointQuantization:
    """Four bits a weight and an 8-bit exponent for each 32 of them."""
    return CheckpointQuantization("mxfp4", 4 + 8 / 32, 32)


def _integers(config: FieldReader) -> CheckpointQuantization:
    """AWQ and GPTQ: an F16 scale and a packed zero point for each group; group_size -1 is a whole row."""
    method = config.text("quant_method").lower()
    bits = config.integer("bits", config.integer("w_bit", 4), maximum=16)
    group = config.fields.get("group_size", config.fields.get("q_group_size", 128))
    if group == -1:
        return CheckpointQuantization(method, float(bits), None)
    size = config.integer("group_size", config.integer("q_group_size", 128))
    return CheckpointQuantization(method, bits + (16 + bits) / size, size)


def _bitsandbytes(config: FieldReader) -> CheckpointQuantization:
    """8 bits with a scale a row, or 4 bits (NF4) with a scale for each 64, itself in 8 bits if quantised twice."""
    if config.flag("load_in_8bit", False) or config.flag("_load_in_8bit", False):
        return CheckpointQuantization("bitsandbytes", 8.0, None)
    twice = config.flag("bnb_4bit_use_double_quant", False)
    scale_bits = 8 + 32 / 256 if twice else 32
    return CheckpointQuantization("bitsandbytes", 4 + scale_bits / 64, 64)


def _grouped(config: FieldReader, method: str) -> CheckpointQuantization:
    """compressed-tensors and ModelOpt: bits and group size of the first group's weights, or the name of a format."""
    named = " ".join(str(config.fields.get(key, "")) for key in ("format", "quant_algo", "quant_method")).lower()
    if "nvfp4" in named:
        return CheckpointQuantization("nvfp4", 4 + 8 / 16, 16)
    if "mxfp4" in named:
        return _mxfp4(config)
    groups = config.fields.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if isinstance(weights, Mapping):
        reader = FieldReader(weights, f"{config.where}: config_groups", weights)
        bits, size = reader.integer("num_bits", maximum=16), reader.fields.get("group_size")
        kind = "fp8" if reader.text("type", "int") == "float" and bits == 8 else "compressed-tensors"
        if not isinstance(size, int) or size < 1:
            return CheckpointQuantization(kind, float(bits), None)
        return CheckpointQuantization(kind, bits + 16 / size, size)
    if "fp8" in named:
        return CheckpointQuantization("fp8", 8.0, None)
    raise config.fail("config_groups", f"does not say how {method} stores the weights")
