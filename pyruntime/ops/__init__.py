"""The operators, one file a family. Importing this package fills the table."""

from pyruntime.ops import (  # noqa: F401
    activation,
    cast,
    control,
    conv,
    elementwise,
    layout,
    logic,
    lstm,
    matmul,
    move,
    norm,
    pool,
    qlinear,
    quant,
    recurrent,
    reduce,
    roi,
    scan,
    vision,
)
