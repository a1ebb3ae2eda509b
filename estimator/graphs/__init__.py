"""The compute graphs that llama.cpp builds, and the size of the buffer that its allocator gives them.

Modules here import `architecture`, `kv_cache`, `placement`, `workload`, `ggml_types` and each other; only
`compute_buffers` and `memory` import them.
"""
