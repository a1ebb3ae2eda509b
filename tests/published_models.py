"""Catalog models as the recorded runs name them, without the NextN layers that those files leave out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from llmcalc.architecture import Model
from llmcalc.model_catalog import find_model

NAMES = {
    "mistral-7b": "mistral-7b-v0.3",
    "llama2-7b": "llama-2-7b",
    "llama32-1b": "llama-3.2-1b",
    "mixtral": "mixtral-8x7b",
    "qwen3next-80b": "qwen3-next-80b-a3b",
    "dsv2-lite": "deepseek-v2-lite",
    "dsv3": "deepseek-v3",
}


@cache
def published(name: str, vocab: int | None = None) -> Model:
    """The model, with another vocabulary if `vocab` says so."""
    model = replace(find_model(NAMES.get(name.lower(), name)), draft_layers=())
    return model if vocab is None else replace(model, vocab=vocab)
