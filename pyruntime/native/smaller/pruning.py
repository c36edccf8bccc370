"""`prune`: a model without the channels whose weights are smallest, or with zeros for the smallest blocks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from pyruntime.arguments import checked
from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import DType
from pyruntime.onnx.edit import FileModel, FileNode
from pyruntime.onnx.model_file import opener, written
from pyruntime.onnx.write import INITIALIZER, INPUT, OUTPUT, VALUE_INFO, Piece, literal, tensor
from pyruntime.quantization.layers import find_layers, without_kept

if TYPE_CHECKING:
    from onnx import ModelProto

_SAME = frozenset(  # each channel is computed from that of the first input
    "AveragePool Clip Dropout Elu Flatten Gelu GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish Identity "
    "LeakyRelu MaxPool Mish Relu Selu Sigmoid Softplus Softsign Tanh".split()
)
_SUMS = ("Add", "Mul", "Sub")
_CHOICES = ("ArgMax", "LogSoftmax", "Softmax")  # of classes, which all stay


@checked
def prune(
    model: str | os.PathLike[str] | bytes | ModelProto, channels: float = 0.5, *, keep: Sequence[str] = (),
    blocks: Sequence[int] | None = None,
) -> bytes:  # fmt: skip
    """The file of a model without a share of the output channels of each Conv and Gemm, those with the smallest norms
    of their weights, and without what reads them. Channels that are added to each other go together; those of outputs
    stay. A training session fine-tunes the rest.

    channels: the share to remove, below 1; keep: patterns of names of layers that stay
    blocks: output channels and inputs of a block, such as (4, 4). Then no channel goes, but this share of the blocks of
        each weight of Conv, Gemm and MatMul becomes zeros. A training session with `zeros="keep"` trains the rest
    Errors: InvalidInput names a node through which channels cannot be followed, or a model without channels to remove.
    """
    if not 0 < channels < 1:
        raise InvalidInput(f"channels is {channels}", hint="a share between 0 and 1")
    open_model = opener(model)
    file = open_model()
    if blocks is not None:
        return _sparse(file, channels, tuple(keep), blocks)
    if file.ir_version < 4:
        raise InvalidInput(
            "in files of IR version 3 constants are inputs", hint="save the model anew with the package onnx"
        )
    walk = _Channels(file, tuple(keep))
    walk.follow()
    cuts = walk.cuts(channels)
    if not cuts:
        raise InvalidInput("no channels can be removed", hint="those of outputs and of kept layers stay")
    for name, part in file.graph.named(INITIALIZER):
        if name in cuts:
            w = cuts[name]
            part.pieces = _tensor(name, walk.dtypes[name], w)
    file.graph.remove([part for _, part in file.graph.named(VALUE_INFO)])  # which have the old sizes
    return written(file)


def _tensor(name: str, dtype: DType, w: np.ndarray) -> list[Piece]:
    return tensor(name, dtype, w.shape, literal(np.ascontiguousarray(w).tobytes()))


def _sparse(file: FileModel, share: float, keep: tuple[str, ...], blocks: Sequence[int]) -> bytes:
    """The file with zeros for a share of the blocks of its weights. Errors: InvalidInput"""
    if len(blocks) != 2 or min(blocks) < 1:
        raise InvalidInput(f"blocks is {blocks!r}", hint="output channels and inputs of a block, such as (4, 4)")
    layers = without_kept([a for a in find_layers(file, 1) if a.node.op in ("Conv", "Gemm", "MatMul")], keep)
    found = {a.place: a for a in layers}
    changed = False
    for name, part in (item for graph in file.graph.all() for item in graph.named(INITIALIZER)):
        if a := found.get(part.start):
            w = _finite(name, np.frombuffer(a.weight.read(), a.weight.dtype.name).reshape(a.shape))
            is_turned = a.node.op != "Conv" and a.has_columns
            rows = _without_blocks(w.T if is_turned else w.reshape(len(w), -1), share, blocks)
            part.pieces = _tensor(name, a.weight.dtype, rows.T if is_turned else rows.reshape(w.shape))
            changed = True
    if not changed:
        raise InvalidInput("no Conv, Gemm or MatMul has a constant weight of float32 or float16")
    return written(file)


def _without_blocks(rows: np.ndarray, share: float, blocks: Sequence[int]) -> np.ndarray:
    """Zeros for the blocks with the smallest norms; those at the ends may be smaller."""
    edges = [np.arange(0, size, n) for size, n in zip(rows.shape, blocks, strict=True)]
    norms = np.add.reduceat(np.add.reduceat(np.square(rows, dtype=np.float64), edges[0], 0), edges[1], 1)
    stays = np.ones(norms.size, bool)
    stays[np.argsort(norms, axis=None, kind="stable")[: round(norms.size * share)]] = False
    mask = stays.reshape(norms.shape).repeat(blocks[0], 0).repeat(blocks[1], 1)
    return np.where(mask[: rows.shape[0], : rows.shape[1]], rows, np.zeros((), rows.dtype))


def _finite(name: str, w: np.ndarray) -> np.ndarray:
    """Errors: InvalidInput"""
    if not np.isfinite(w).all():
        raise InvalidInput(f'weight "{name}" has numbers that are not finite', hint="keep its layer")
    return w


@dataclass(eq=False, slots=True)
class _Group:
    """Channels that stay or go together. places: axes of weights that they are, each with the number of elements of a
    channel; makers: of these, those of layers that compute them, whose norms count; is_fixed: they stay; other: the
    group that this one is a part of"""

    count: int
    places: list[tuple[str, int, int]] = field(default_factory=list)
    makers: list[tuple[str, int]] = field(default_factory=list)
    is_fixed: bool = False
    other: _Group | None = None

    def whole(self) -> _Group:
        return self.other.whole() if self.other else self

    def join(self, group: _Group) -> None:
        a, b = self.whole(), group.whole()
        if a is not b:
            a.places += b.places
            a.makers += b.makers
            a.is_fixed |= b.is_fixed
            b.other = a


class _Channels:
    """Follows channels, axis 1 of values, through a graph."""

    def __init__(self, file: FileModel, keep: tuple[str, ...]) -> None:
        self._file, self._keep = file, keep
        overridable = {name for name, _ in file.graph.named(INPUT)}
        self._parts = {name: part for name, part in file.graph.named(INITIALIZER) if name not in overridable}
        self._readers = Counter(x for graph in file.graph.all() for n in graph.nodes for x in n.inputs)
        self._readers.update(name for graph in file.graph.all() for name, _ in graph.named(OUTPUT))
        self._values: dict[str, tuple[_Group, int]] = {}  # groups and ranks
        self._made: list[_Group] = []
        self.dtypes: dict[str, DType] = {}

    def follow(self) -> None:
        """Errors: InvalidInput"""
        outputs = {name for name, _ in self._file.graph.named(OUTPUT)}
        for n in self._file.graph.nodes:
            found = self._result(n)
            if found:
                self._values[n.outputs[0]] = found
                found[0].whole().is_fixed |= not outputs.isdisjoint(n.outputs)

    def cuts(self, share: float) -> dict[str, np.ndarray]:
        """New values of weights, by name."""
        found: dict[str, np.ndarray] = {}
        for g in dict.fromkeys(g.whole() for g in self._made):
            left = max(1, round(g.count * (1 - share)))
            if g.is_fixed or left == g.count:
                continue
            squares = sum(self._squares(name, axis) for name, axis in g.makers)
            channels = np.sort(np.argsort(-squares, kind="stable")[:left])
            for name, axis, each in g.places:
                places = (channels[:, None] * each + np.arange(each)).ravel()
                found[name] = np.take(found.get(name, self._weight(name)), places, axis)
        return found

    def _squares(self, name: str, axis: int) -> Any:
        """Of the norms of channels. Errors: InvalidInput"""
        w = np.moveaxis(_finite(name, self._weight(name)), axis, 0)
        return np.square(w.reshape(len(w), -1), dtype=np.float64).sum(1)

    def _weight(self, name: str) -> np.ndarray:
        part = self._parts[name]
        w = self._file.weight((part.start, part.end))
        self.dtypes[name] = w.dtype
        return np.frombuffer(w.read(), w.dtype.name).reshape(w.shape)

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _result(self, n: FileNode) -> tuple[_Group, int] | None:
        """The channels of what a node computes, and its rank."""
        inner = {x for g in n.graphs for h in g.all() for m in h.nodes for x in m.inputs}
        if not inner.isdisjoint(self._values):
            raise self._unknown(n)
        op = n.op if n.domain in ("", "ai.onnx") else ""
        is_plain = n.attributes.get("group", 1) == 1 and not n.attributes.get("transA", 0)
        if op in ("Conv", "Gemm") and n.inputs[1] in self._parts and is_plain:
            return self._layer(n)
        known = [self._values[x] for x in n.inputs if x in self._values]
        if not known:
            return None
        group, rank = known[0]
        if op in _CHOICES:
            group.whole().is_fixed = True
            return None
        if op == "BatchNormalization" and n.inputs[0] in self._values:
            for x in n.inputs[1:5]:
                self._place(n, group, x, 0)
        elif op in _SUMS:
            self._sum(n, known)
        elif op not in _SAME or n.inputs[0] not in self._values or n.attributes.get("axis", 1) != 1:
            raise self._unknown(n)
        return group, 2 if op == "Flatten" else max(r for _, r in known)

    def _layer(self, n: FileNode) -> tuple[_Group, int]:
        w = self._weight(n.inputs[1])
        out = 1 if n.op == "Gemm" and not n.attributes.get("transB", 0) else 0
        group = _Group(w.shape[out], makers=[(n.inputs[1], out)])
        name = n.name or n.outputs[0]
        group.is_fixed = any(fnmatchcase(name, pattern) for pattern in self._keep)
        self._made.append(group)
        if before := self._values.get(n.inputs[0]):
            self._place(n, before[0], n.inputs[1], 1 - out)
        self._place(n, group, n.inputs[1], out)
        if len(n.inputs) > 2 and n.inputs[2]:
            if n.inputs[2] not in self._parts:
                raise self._unknown(n)
            bias = self._weight(n.inputs[2]).shape
            if bias and bias[-1] != 1:
                self._place(n, group, n.inputs[2], len(bias) - 1)
        return group, w.ndim

    def _sum(self, n: FileNode, known: list[tuple[_Group, int]]) -> None:
        group, rank = known[0]
        if len(known) == 2:
            if (group.count, rank) != (known[1][0].count, known[1][1]):  # another rank: axes of other meanings
                raise self._unknown(n)
            group.join(known[1][0])
            return
        other = next(x for x in n.inputs if x not in self._values)
        shape = self._weight(other).shape if other in self._parts else ()
        if other not in self._parts or len(shape) > rank:
            raise self._unknown(n)
        axis = len(shape) - rank + 1
        if axis >= 0 and shape[axis] != 1:
            self._place(n, group, other, axis)

    def _place(self, n: FileNode, group: _Group, name: str, axis: int) -> None:
        """An axis of a weight has these channels. Errors: InvalidInput"""
        size = self._weight(name).shape[axis] if name in self._parts else 0
        g = group.whole()
        if not size or size % g.count or self._readers[name] > 1:
            raise self._unknown(n)
        g.places.append((name, axis, size // g.count))

    def _unknown(self, n: FileNode) -> InvalidInput:
        text = f'{n.op} "{n.name or n.outputs[0]}": channels cannot be followed through it'
        before = [x for x in n.inputs if x in self._values]
        return InvalidInput(
            text, hint=f"it reads {', '.join(before) or 'weights'}; cut the model before it, or change it"
        )
