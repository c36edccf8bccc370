"""`quantize` and `quantize_static` on native sessions."""

from __future__ import annotations

import numpy as np

from pyruntime.native.sessions.session import Session
from pyruntime.quantization.host import Sessions
from pyruntime.quantization.quantize import Quantizers

SESSIONS = Sessions(
    Session,
    lambda dtype, dims, data: np.frombuffer(data, dtype).reshape(dims),
    lambda x: x.reshape(-1),
)
_FUNCTIONS = Quantizers(SESSIONS)
quantize = _FUNCTIONS.quantize
"""Make a smaller model: `quantize(model, bits=4, *, samples=(), max_error=None, keep=(), smallest=16384, block_size=32,
accuracy_level=0)`. `help(pyruntime.quantize)` describes the arguments, docs/use/convert.md their use."""
quantize_static = _FUNCTIONS.quantize_static
"""Make a model that computes with 8 bits: `quantize_static(model, samples, *, calibration="range", percentile=99.99,
keep=(), trainable=False)`. `help(pyruntime.quantize_static)` describes the arguments, docs/use/smaller.md its use."""
