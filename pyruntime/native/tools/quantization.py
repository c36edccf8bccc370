"""`quantize` on native sessions."""

from __future__ import annotations

import numpy as np

from pyruntime.native.sessions.session import Session
from pyruntime.quantization.host import Sessions
from pyruntime.quantization.quantize import quantizer

quantize = quantizer(
    Sessions(
        Session,
        lambda dtype, dims, data: np.frombuffer(data, dtype).reshape(dims),
        lambda x: x.reshape(-1),
    )
)
"""Make a smaller model: `quantize(model, bits=4, *, samples=(), max_error=None, keep=(), smallest=16384, block_size=32,
accuracy_level=0)`. `help(pyruntime.quantize)` describes the arguments, docs/use/convert.md their use."""
