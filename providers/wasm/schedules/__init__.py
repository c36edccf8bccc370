"""Kernels scheduled by hand, as WebAssembly: products, convolutions, attention."""
