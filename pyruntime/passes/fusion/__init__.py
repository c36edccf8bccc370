"""Passes that merge kernels."""
