"""Readers of other programs' descriptions of a model: GGUF files and Hugging Face config.json.

Modules here import what models are made of (`architecture`, `conventions`, `model_fields`, `tensors`,
`quantization`) and each other; `request` loads them when it is given a file.
"""
