"""The operators, by domain, one file per family. Importing this package registers the common families; each rare
family is imported when a model has an operator of it."""

import pyruntime.ops.microsoft.attention
import pyruntime.ops.microsoft.fused
import pyruntime.ops.microsoft.group_attention
import pyruntime.ops.microsoft.nbits
import pyruntime.ops.microsoft.norm
import pyruntime.ops.microsoft.qlinear
import pyruntime.ops.microsoft.quant
import pyruntime.ops.microsoft.rotary  # noqa: F401
from pyruntime.frontend import registry
from pyruntime.ops import rare
from pyruntime.ops.standard import (  # noqa: F401
    activation,
    attention,
    cast,
    control,
    conv,
    cumulative,
    einsum,
    elementwise,
    index,
    layout,
    logic,
    lstm,
    matmul,
    move,
    norm,
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

registry.register_lazily(rare.MODULES)
