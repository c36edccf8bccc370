"""Numbers the buffers of a Program, and collects its constants and the bytes that it carries."""

from __future__ import annotations

from typing import Any

from pyruntime.codegen.provider import LINEAR
from pyruntime.emit.further_memories import FurtherMemories
from pyruntime.emit.residency import Residency
from pyruntime.emit.symbol_names import SymbolNames
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import STRING
from pyruntime.ir.kernel import Host, Leaf, Tensor, root
from pyruntime.ir.storage import encode
from pyruntime.onnx.graph import Weight
from pyruntime.placement.own_memory import KEPT

MEMORY = ":memory:"  # the source of a weight whose bytes are in no file; the Program contains them


class Buffers:
    """buffers, constants: lists of the Program's header
    numbers: the buffer number of each tensor, by uid
    states: the tensors that runs change, by name
    blob: bytes that the Program carries
    further: placement of weights in further linear memories
    """

    def __init__(self, residency: Residency, symbols: SymbolNames) -> None:
        self.residency = residency
        self.symbols = symbols
        self.buffers: list[dict[str, Any]] = []
        self.constants: list[dict[str, Any]] = []
        self.numbers: dict[int, int] = {}
        self.states: dict[str, Any] = {}
        self.blob = bytearray()
        self.further = FurtherMemories()

    def number(self, t: Tensor) -> int:
        """The number of the buffer that holds a tensor. Aliases share a buffer."""
        base = root(t)
        if base.uid not in self.numbers:
            number = self.numbers[base.uid] = len(self.buffers)
            self.buffers.append(self._buffer(base))
            if isinstance(base.kernel, Leaf) and base.kernel.kind in ("weight", "constant", "state"):
                self.constants.append({"buffer": number, "dtype": base.dtype.name, **self._contents(base)})
                if base.kernel.kind == "state":
                    self.states[base.name] = {"buffer": number, "dtype": base.dtype.name, "dims": list(base.shape)}
        return self.numbers[base.uid]

    def scratch(self, size: int) -> int:
        """The number of a new buffer of so many bytes that holds no tensor."""
        self.buffers.append({"size": size})
        return len(self.buffers) - 1

    def tensor(self, t: Tensor) -> dict[str, Any]:
        """A tensor in the memory in which its kernel makes it."""
        return self._tensor(t, t)

    def tensor_in_linear_memory(self, t: Tensor) -> dict[str, Any]:
        """A tensor in linear memory, or its copy in linear memory."""
        return self._tensor(t, self.residency.at(t, LINEAR))

    def value(self, v: Any) -> Any:
        """A graph output in linear memory: a tensor, a sequence, or None for an empty optional."""
        if isinstance(v, Tensor):
            return self.tensor_in_linear_memory(v)
        return {"items": [self.value(i) for i in v.items]} if hasattr(v, "items") else None

    def append(self, data: bytes) -> list[int]:
        """Append data to the blob. Returns offset and size."""
        self.blob += b"\0" * (-len(self.blob) % 16)
        place = [len(self.blob), len(data)]
        self.blob += data
        return place

    def _tensor(self, t: Tensor, held: Tensor) -> dict[str, Any]:
        number = self.number(held)
        return {"buffer": number, "dtype": t.dtype.name, "dims": [self.symbols.dim(d) for d in t.shape]}

    def _buffer(self, t: Tensor) -> dict[str, Any]:
        if t.dtype is STRING or isinstance(t.kernel, Host) and t.uid in t.kernel.attrs.get(KEPT, ()):
            return {"size": 0, "host": True}
        memory = self.residency.memory(t)
        size = self.symbols.dim(sh.size(t.shape) * min(t.dtype.size, memory.widest))
        if t.uid in self.further.places:
            return {"size": size, "further": list(self.further.places[t.uid])}
        return {"size": size} if memory is LINEAR else {"size": size, "memory": memory.name}

    def _contents(self, t: Tensor) -> dict[str, Any]:
        leaf: Any = t.kernel
        value = leaf.value
        if value is None:
            return {"zeros": True}
        flush = {"flush": True} if leaf.flushed else {}
        if isinstance(value, Weight):
            return {**self._weight(value), **flush}
        if t.dtype is STRING:
            return {"strings": [str(s) for s in value]}
        return {"blob": self.append(encode(value, t.dtype)), "unpack": 0, "signed": False, **flush}

    def _weight(self, w: Weight) -> dict[str, Any]:
        if w.strings is not None:
            return {"strings": [s.decode("utf-8", "replace") for s in w.strings]}
        assert w.source is not None
        packing = {"unpack": w.dtype.bits if w.dtype.bits < 8 else 0, "signed": w.dtype.kind == "i"}
        if w.source.name == MEMORY:
            return {"blob": self.append(w.read()), **packing}
        return {"source": w.source.name, "offset": w.offset, "size": w.size, **packing}
