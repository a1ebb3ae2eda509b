"""Readers of other programs' descriptions of a model: GGUF files and Hugging Face config.json."""
