"""What machine is this: GPUs, CPU and memory as the system's own tools report them, and the roofs measured on it."""
