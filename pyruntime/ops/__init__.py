"""The operators, one file a family. Importing this package fills the table."""

from pyruntime.ops import elementwise, matmul  # noqa: F401
