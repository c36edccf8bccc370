"""Writes a Program from kernels with assigned providers: steps, calls, buffers and their lifetimes."""
