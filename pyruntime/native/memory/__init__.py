"""Memory of Programs: arrays in the storage layout, arenas, addresses for each step, argument blocks of kernels."""
