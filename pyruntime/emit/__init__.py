"""From kernels that have their places to a Program: steps, calls, buffers and their lifetimes."""
