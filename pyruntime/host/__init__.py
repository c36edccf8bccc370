"""Functions of `Host` kernels. Importing this package fills the table.

But for those on strings (`pyruntime.host.text`): they come with their operators."""

import pyruntime.host.image
import pyruntime.host.reference  # noqa: F401  each registers its functions
from pyruntime.host.table import FUNCTIONS, Function, call, host_function

__all__ = ["FUNCTIONS", "Function", "call", "host_function"]
