"""Reverse-mode differentiation: records the kernels that compute the gradients of traced values."""

import pyruntime.ops  # noqa: F401  registers the operators
