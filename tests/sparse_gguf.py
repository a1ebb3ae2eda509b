"""GGUF files of catalog models with a hole for data: llama.cpp's tools can report memory for them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from llmcalc.architecture import Model
from llmcalc.importers.gguf_writer import metadata
from llmcalc.quantization import Weights

ALIGNMENT = 32


def write_sparse(model: Model, weights: Weights, path: Path) -> None:
    """A file without vocabulary whose tensors are those of `weights`, without their data."""
    writer = gguf.GGUFWriter(path, model.architecture)
    writer.add_tokenizer_model("no_vocab")
    for key, value in metadata(model).items():
        if isinstance(value, (bool, str)):
            (writer.add_bool if isinstance(value, bool) else writer.add_string)(key, value)  # type: ignore[operator]
        elif isinstance(value, (int, float)):
            (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(key, value)  # type: ignore[operator]
        else:
            writer.add_array(key, list(value))
    for quantized in weights.tensors:
        writer.add_tensor_info(
            quantized.tensor.name, quantized.tensor.shape[::-1], np.dtype(np.float16), quantized.bytes,
            raw_dtype=gguf.GGMLQuantizationType(quantized.type.id),
        )  # fmt: skip
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    size = -(-path.stat().st_size // ALIGNMENT) * ALIGNMENT
    with path.open("r+b") as file:
        file.truncate(size + sum(-(-quantized.bytes // ALIGNMENT) * ALIGNMENT for quantized in weights.tensors))
