"""Which kernels a GPU cannot run, and why."""
