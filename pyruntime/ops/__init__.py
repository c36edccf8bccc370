"""The operators, one file a family. Importing this package fills the table; rare families come when an operator
is not found."""

from pyruntime.frontend import registry
from pyruntime.ops import (  # noqa: F401
    activation,
    attention,
    attention_microsoft,
    cast,
    control,
    conv,
    cumulative,
    einsum,
    elementwise,
    fused_microsoft,
    group_attention,
    index,
    layout,
    logic,
    lstm,
    matmul,
    move,
    nbits,
    norm,
    norm_microsoft,
    pool,
    qlinear,
    quant,
    random,
    recurrent,
    reduce,
    resize,
    rotary,
    sort,
    vision,
)

registry.later("pyruntime.ops.rare")
