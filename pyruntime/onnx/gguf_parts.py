"""Records the nodes and weights of a graph, with the tensors of a GGUF file as weights."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from pyruntime.errors import InvalidModel
from pyruntime.ir.dtype import F32, I64, U8, DType
from pyruntime.onnx.gguf_blocks import BLOCKS, NAMES, PLAIN
from pyruntime.onnx.gguf_reader import GgufFile, Tensor
from pyruntime.onnx.graph import Node, Weight
from pyruntime.onnx.sources import MemorySource

OPSETS = {"": 23, "com.microsoft": 1, "pyruntime.gguf": 1}
MICROSOFT = "com.microsoft"


class GraphParts:
    """A call records a node and returns the name of its first output."""

    def __init__(self, file: GgufFile, modules: Callable[[str], str]) -> None:
        """modules: the name that the model's part has in transformers, for a tensor's name without its last part"""
        self.file, self.module_of = file, modules
        self.nodes: list[Node] = []
        self.weights: dict[str, Weight] = {}
        self.read: set[str] = set()  # names of the tensors that the graph uses
        self._unpacked: set[str] = set()  # names of codes that a node gives
        self._count = 0

    def __call__(
        self, op: str, *inputs: str, domain: str = "", outputs: Sequence[str] | int = 1, module: str = "",
        **attributes: object
    ) -> str:  # fmt: skip
        """module: the part of the model that the node computes, in transformers' names"""
        self._count += 1
        name = f"/{module.replace('.', '/')}/{op}" if module else f"{op}_{self._count}"
        made = [f"{name}:{n}" for n in range(outputs)] if isinstance(outputs, int) else outputs
        node = Node(op, domain, OPSETS[domain], name, inputs, tuple(made), attributes, module=module)
        self.nodes.append(node)
        return node.outputs[0]

    def outputs(self) -> tuple[str, ...]:
        """All outputs of the newest node."""
        return self.nodes[-1].outputs

    def numbers(self, dtype: DType, *values: float, scalar: bool = False) -> str:
        """A constant vector of int64 or float32."""
        form = "q" if dtype is I64 else "f"
        data = struct.pack(f"<{len(values)}{form}", *values)
        name = f"constant_{len(self.weights)}"
        self.weights[name] = Weight(name, dtype, () if scalar else (len(values),), MemorySource(data), 0, len(data))
        return name

    # ── tensors of the file ──

    def has(self, name: str) -> bool:
        return name in self.file.tensors

    def tensor(self, name: str) -> Tensor:
        if name not in self.file.tensors:
            raise InvalidModel(f'this GGUF file has no tensor "{name}", which its architecture needs')
        self.read.add(name)
        return self.file.tensors[name]

    def plain(self, name: str, heads: int = 0) -> str:
        """A tensor of numbers, as float32. heads: see `_weight`"""
        found = self.tensor(name)
        if found.kind not in PLAIN:
            raise InvalidModel(
                f'tensor "{name}" of this GGUF file has the type {NAMES[found.kind]}, where floats belong'
            )
        dtype = PLAIN[found.kind]
        made = self._weight(name, dtype, found.shape, heads)
        return made if dtype is F32 else self("Cast", made, to=F32.code)

    def is_plain(self, name: str) -> bool:
        return self.tensor(name).kind in PLAIN

    def _own_name(self, name: str) -> str:
        module, _, part = name.rpartition(".")
        return f"{self.module_of(module)}.{part}"

    def _weight(self, name: str, dtype: DType, shape: tuple[int, ...], heads: int = 0) -> str:
        """A weight with the bytes of a tensor, under the name that it has in transformers. heads: of the rows, in which
        pairs that are rotated are neighbours in the file; here they are a half of the head apart, as in transformers"""
        found, own = self.tensor(name), self._own_name(name)
        self.weights.setdefault(own, Weight(own, dtype, shape, self.file.source, found.offset, found.size))
        return self("PairsApart", own, domain="pyruntime.gguf", heads=heads) if heads else own

    def codes(self, name: str, bits: int = 0, heads: int = 0) -> tuple[tuple[str, ...], int, int]:
        """The names of a matrix' codes, scales and, if it has them, zero points; bits and elements of a group. bits: a
        wider code than that of the type; heads: see `_weight`"""
        found = self.tensor(name)
        block = BLOCKS.get(found.kind)
        if block is None or len(found.shape) != 2:
            known = ", ".join(NAMES[kind] for kind in (*PLAIN, *BLOCKS))
            what = f'tensor "{name}" {list(found.shape)} of this GGUF file has the type {NAMES[found.kind]}'
            raise InvalidModel(what, hint=f"matrices can have the types {known}")
        rows, columns = found.shape
        width = max(bits, block.bits)
        attributes: dict[str, Any] = {"kind": found.kind, **({"bits": width} if width != block.bits else {})}
        symmetric = block.minimum is None and width == block.bits
        own = self._own_name(name)
        outputs = [f"{own}:{part}_{width}" for part in ("codes", "scales", "zeros")][: 2 if symmetric else 3]
        if outputs[0] not in self._unpacked:
            self._unpacked.add(outputs[0])
            blocks = self._weight(name, U8, (rows, columns // block.size, block.bytes), heads)
            self("Unpack", blocks, domain="pyruntime.gguf", outputs=outputs, **attributes)
        return tuple(outputs), width, block.group
