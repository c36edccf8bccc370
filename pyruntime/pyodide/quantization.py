"""`quantize` and `quantize_static` on sessions of Pyodide."""

from __future__ import annotations

from math import prod
from typing import Any

from pyruntime.ir.dtype import BY_NAME
from pyruntime.pyodide.session import InferenceSession
from pyruntime.pyodide.tensors import Tensor
from pyruntime.quantization.host import Sessions
from pyruntime.quantization.quantize import Quantizers


def _vector(x: Any) -> Any:
    return Tensor(x.dtype, (prod(x.shape),), x.data) if isinstance(x, Tensor) else x.reshape(-1)


_FUNCTIONS = Quantizers(
    Sessions(InferenceSession, lambda dtype, dims, data: Tensor(BY_NAME[dtype], dims, data), _vector)
)
quantize, quantize_static = _FUNCTIONS.quantize, _FUNCTIONS.quantize_static
