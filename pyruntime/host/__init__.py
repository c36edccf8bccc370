"""Functions of `Host` kernels. Importing this package fills the table."""

import pyruntime.host.image
import pyruntime.host.reference
import pyruntime.host.text  # noqa: F401  each registers its functions
from pyruntime.host.table import FUNCTIONS, Function, call, host_function

__all__ = ["FUNCTIONS", "Function", "call", "host_function"]
