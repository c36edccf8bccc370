"""The operators, one file a family. Importing this package fills the table."""

from pyruntime.ops import (  # noqa: F401
    activation,
    cast,
    control,
    conv,
    elementwise,
    logic,
    lstm,
    matmul,
    norm,
    pool,
    recurrent,
    roi,
    scan,
)
