"""The families that few models have. `registry.find` imports this module for an operator that is not registered."""

import pyruntime.host.text  # noqa: F401
from pyruntime.ops.microsoft import (  # noqa: F401
    aliases,
    attention_lstm,
    beam_search,
    experts,
    gates,
    greedy_search,
    linalg,
    qlinear,
    sparse_attention,
    tokens,
    vision,
    whisper,
    words,
)
from pyruntime.ops.ml import encode, linear, svm, trees  # noqa: F401
from pyruntime.ops.standard import (  # noqa: F401
    deform_conv,
    experimental,
    flex_attention,
    grid,
    linear_attention,
    loss,
    optimizers,
    roi,
    scan,
    sequence,
    signal,
    text,
    unique,
)
