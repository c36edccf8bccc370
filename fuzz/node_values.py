"""The values that a node reads and writes in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from fuzz.compare import widen
from fuzz.draw import is_float


class NodeValues:
    """The values of a node. values: by name; for a name that is not known, any fed value may stand."""

    def __init__(self, node: Any, values: Mapping[str, Any], fed: Mapping[str, Any]) -> None:
        self.node, self._values, self._fed = node, values, fed

    def at(self, *inputs: int) -> list[np.ndarray]:
        """Arrays that these inputs may be; all inputs if no number is given."""
        chosen = inputs or range(len(self.node.input))
        names = [self.node.input[n] for n in chosen if n < len(self.node.input) and self.node.input[n]]
        found = [v for name in names for v in self._of(name)]
        return [x for v in found for x in (v if isinstance(v, list) else [v]) if isinstance(x, np.ndarray)]

    def _of(self, name: str) -> Iterable[Any]:
        return [self._values[name]] if name in self._values else self._fed.values()

    def is_computed(self, n: int) -> bool:
        """Whether another node computes input n."""
        return len(self.node.input) > n and self.node.input[n] not in self._fed

    def outputs(self, n: int) -> list[np.ndarray]:
        names = [name for name in self.node.output[n : n + 1] if name]
        return [x for name in names for x in self._of(name) if isinstance(x, np.ndarray) and is_float(x.dtype)]

    def floats(self, *inputs: int) -> list[np.ndarray]:
        return [x for x in self.at(*inputs) if is_float(x.dtype) and x.size]

    def largest(self, *inputs: int) -> float:
        """The largest magnitude of the floats of these inputs; infinite if one is NaN."""
        sizes = [float(np.abs(widen(x)).max()) for x in self.floats(*inputs)]
        return max((np.inf if size != size else size for size in sizes), default=0.0)

    def attribute(self, name: str, default: Any = None) -> Any:
        return next((onnx.helper.get_attribute_value(a) for a in self.node.attribute if a.name == name), default)
