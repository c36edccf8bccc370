"""Reverse-mode differentiation: records the kernels that compute the gradients of traced values."""

import pyruntime.ops  # noqa: F401  registers the operators
from pyruntime.frontend import registry

# Some rules stand beside rare operators. If these were imported one by one, they would count as operators of users, for
# which Programs are not cached.
registry.complete(("", "RoiAlign"))
