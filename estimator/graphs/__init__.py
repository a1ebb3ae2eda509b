"""The compute graphs that llama.cpp builds, and the size of the buffer that its allocator gives them."""
