"""Functions of `Host` kernels. Importing this package fills the table."""

from pyruntime.host import image, reference, text
from pyruntime.host.table import FUNCTIONS, Function, host_function

__all__ = ["FUNCTIONS", "Function", "host_function", "image", "reference", "text"]
