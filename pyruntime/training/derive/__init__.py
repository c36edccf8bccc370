"""Reverse-mode differentiation: records the kernels that compute the gradients of traced values."""
