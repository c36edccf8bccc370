"""Adapters of sessions in Pyodide. JavaScript joins their matrices, because Python may have no NumPy there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx.graph import tensor_type
from pyruntime.pyodide.programs import executor, result_of, value_of
from pyruntime.pyodide.tensors import Tensor
from pyruntime.training.adapters.adapter_inputs import AdapterInputs, in_javascript
from pyruntime.training.adapters.session_adapters import Active, SessionAdapters
from pyruntime.training.files.safetensors import Stored


class PyodideAdapters(SessionAdapters[Tensor]):
    def array(self, t: Stored) -> Tensor:
        return Tensor(BY_NAME[t.dtype], tuple(t.shape), bytes(t.data))

    def joined(self, inputs: AdapterInputs, active: Sequence[Active]) -> dict[str, Any]:
        from pyodide.ffi import to_js

        declared = {v.name: tensor_type(v.type) for v in self.graph.inputs}
        described = {
            "rowsA": inputs.rows_a,
            "rowsB": inputs.rows_b,
            "hasMagnitudes": inputs.has_magnitudes,
            "types": {name: t.dtype.name for name, t in declared.items() if t is not None and t.dtype is not None},
            "active": [
                {
                    "places": in_javascript(one.places),
                    "weight": one.weight,
                    "tensors": [[name, t.dtype, t.shape] for name, t in one.adapter.tensors.items()],
                }
                for one in active
            ],
        }
        data = [memoryview(t.data) for one in active for t in one.adapter.tensors.values()]
        found = value_of(executor().join(json.dumps(described), to_js(data)))
        return {name: result_of(tensor) for name, tensor in found}
