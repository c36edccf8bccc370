"""What arrives at a node: its inputs, by what is known of the values of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from fuzz.compare import widen
from fuzz.draw import is_float


class NodeValues:
    """What arrives at a node. values: by name; where a name is not known, all that is fed stands for it."""

    def __init__(self, node: Any, values: Mapping[str, Any], fed: Mapping[str, Any]) -> None:
        self.node, self._values, self._fed = node, values, fed

    def at(self, *inputs: int) -> list[np.ndarray]:
        """Arrays that may arrive at these inputs; at any if none is named."""
        chosen = inputs or range(len(self.node.input))
        names = [self.node.input[n] for n in chosen if n < len(self.node.input) and self.node.input[n]]
        found = [v for name in names for v in self._of(name)]
        return [x for v in found for x in (v if isinstance(v, list) else [v]) if isinstance(x, np.ndarray)]

    def _of(self, name: str) -> Iterable[Any]:
        return [self._values[name]] if name in self._values else self._fed.values()

    def is_computed(self, n: int) -> bool:
        """Whether input n is what another node gives."""
        return len(self.node.input) > n and self.node.input[n] not in self._fed

    def outputs(self, n: int) -> list[np.ndarray]:
        names = [name for name in self.node.output[n : n + 1] if name]
        return [x for name in names for x in self._of(name) if isinstance(x, np.ndarray) and is_float(x.dtype)]

    def floats(self, *inputs: int) -> list[np.ndarray]:
        return [x for x in self.at(*inputs) if is_float(x.dtype) and x.size]

    def largest(self, *inputs: int) -> float:
        """The largest magnitude among floats; infinite where there is a NaN."""
        sizes = [float(np.abs(widen(x)).max()) for x in self.floats(*inputs)]
        return max((np.inf if size != size else size for size in sizes), default=0.0)

    def attribute(self, name: str, default: Any = None) -> Any:
        return next((onnx.helper.get_attribute_value(a) for a in self.node.attribute if a.name == name), default)
