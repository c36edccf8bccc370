"""Functions of `Host` kernels. Importing this package registers all but those on strings (`pyruntime.host.text`), which
are imported with their operators."""

import pyruntime.host.image
import pyruntime.host.reference  # noqa: F401  each registers its functions
from pyruntime.host.table import ARRAYS, FUNCTIONS, Function, call, host_function, values_of_symbols

__all__ = ["ARRAYS", "FUNCTIONS", "Function", "call", "host_function", "values_of_symbols"]
