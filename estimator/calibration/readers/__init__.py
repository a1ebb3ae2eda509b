"""Readers of benchmark output: whatever llama.cpp's tools, Ollama and people print → `Run`."""
