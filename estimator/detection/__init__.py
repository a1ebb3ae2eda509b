"""What machine is this: GPUs, CPU and memory as the system's own tools report them, and the roofs measured on it.

Modules here import the hardware catalog (`catalog`, `device_catalog`, `system`, `names`) and each other.
"""
