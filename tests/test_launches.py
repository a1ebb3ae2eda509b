"""Launches of a step: what architectures add to the kernels of a plain layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmcalc.launches import layer_launches, step_launches
from llmcalc.model_catalog import find_model


def test_a_dense_llama_layer_has_eighteen() -> None:
    """llama.cpp b11434, ggml/src/ggml-cuda/ggml-cuda.cu, after fusion."""
    assert {layer_launches(layer) for layer in find_model("llama3.1-8b").layers} == {18}


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("gemma4-e4b", 7),  # gate, GELU with the layer's own embedding, projection, norm, scale (src/models/gemma4.cpp)
        ("gemma4-26b-a4b", 7),  # three norms, the router's own, the experts' scale, the layer's
        ("gemma3n-e4b", 40),  # AltUp's prediction and correction, LAuReL, the layer's own embedding
        ("llama3.1-8b", 0),
        ("qwen3-30b-a3b", 0),
    ],
)
def test_what_architectures_add_to_a_layer(model: str, more: int) -> None:
    layer = find_model(model).layers[0]
    assert layer_launches(layer) - layer_launches(replace(layer, extras=())) == more


def test_embeddings_of_every_layer_are_projected_once_a_step() -> None:
    model = find_model("gemma4-e4b")
    assert step_launches(model) - step_launches(replace(model, extras=())) == 7
