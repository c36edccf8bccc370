"""Stores half-float tensors between kernels as float32, because CPU kernels compute in float32 anyway.

WebAssembly has no half floats: a load decodes bits, a store encodes them. If a tensor between two kernels is float32,
neither step is needed, and its values are more exact. Feeds, outputs, large weights and tensors that are only moved
keep their type. A cast to half float and back within one expression stays: it is the rounding that an operator such as
Cast asks for.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyruntime.codegen.half_floats import HALVES
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels, own_inputs
from pyruntime.ir.dtype import F32, DType
from pyruntime.ir.expr import Expr, bitcast, cast, index, walk, with_args
from pyruntime.ir.kernel import Alias, Block, Call, Kernel, Leaf, Loops, Map, Reduce, Stmt, Store, Tensor, root
from pyruntime.ir.statements import rebuild

LARGEST_COPY = 1 << 16  # elements of a weight that is copied as float32: biases and scales, not embeddings


def widen_halves(block: Block, outputs: Iterable[Tensor]) -> None:
    """Widen tensors in this block and its inner blocks. outputs: the tensors that leave the Program."""
    kernels = all_kernels(block)
    if not any(t.dtype in HALVES for k in kernels for t in (*k.inputs, *k.outputs)):
        return
    computing, wide = _wide(kernels, fixed_types(kernels, outputs))
    _set_types(kernels, wide)
    widening = _Widening(LARGEST_COPY)
    for k in computing:
        widening.kernel(k)
    block.kernels[:0] = widening.copies.values()


def widen(kernels: Iterable[Kernel], wide: set[int]) -> None:
    """Widen the tensors with these uids. kernels: all that read or make one"""
    _set_types(kernels, wide)
    widening = _Widening(0)
    for k in kernels:
        widening.kernel(k)


def _set_types(kernels: Iterable[Kernel], wide: set[int]) -> None:
    for k in kernels:
        for t in k.outputs:
            if root(t).uid in wide:
                t.dtype = F32


def fixed_types(kernels: list[Kernel], outputs: Iterable[Tensor]) -> set[int]:
    """Uids of tensors whose type must stay: outputs, and tensors that kernels without computation read or make."""
    fixed = {root(t).uid for t in outputs}
    for k in kernels:
        if not isinstance(k, (Map, Reduce, Loops, Alias)) or isinstance(k, Loops) and k.bases:
            fixed |= {root(t).uid for t in (*own_inputs(k), *k.outputs)}
        for inner in k.blocks:
            fixed |= {root(t).uid for t in (*inner.inputs, *inner.outputs)}
    return fixed


def _wide(kernels: list[Kernel], fixed: set[int]) -> tuple[list[Kernel], set[int]]:
    """The kernels that compute, and the uids of the results that become float32."""
    computing: list[Kernel] = []
    wide: set[int] = set()
    for k in kernels:
        if isinstance(k, (Reduce, Loops, Call)) or isinstance(k, Map) and not only_moves(k, wide):
            computing.append(k)
            wide |= {t.uid for t in k.outputs if t.dtype in HALVES and t.uid not in fixed}
    return computing, wide


def only_moves(k: Map, wide: set[int]) -> bool:
    """Whether a map only loads and selects half floats, none of which becomes float32."""
    if k.out.dtype not in HALVES or any(root(t).uid in wide for t in k.inputs):
        return False
    return all(e.op in ("at", "guard", "select", "const") for e in walk(k.expr) if e.dtype in HALVES)


class _Widening:
    """Rewrites expressions of half floats as expressions of float32. largest: elements of a weight that is copied as
    float32; copies: these copies, by uid."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.copies: dict[int, Map] = {}
        self._widened: dict[int, tuple[Expr, Expr]] = {}  # by id of the old expression, which keeps that id alive

    def kernel(self, k: Kernel) -> None:
        if isinstance(k, Call):
            k.args = tuple([t and _source(t) for t in k.args])
            if not isinstance(k.meaning, Block):
                self._compute(k.meaning, k.out.dtype)
        else:
            self._compute(k, k.out.dtype)

    def _compute(self, k: Kernel, out: DType) -> None:
        if isinstance(k, Loops):
            k.body = [self._statement(s) for s in k.body]
            k.args = tuple([self._weight(_source(t)) for t in k.args])
        elif isinstance(k, Map):
            k.expr = self._result(k.expr, out)
        elif isinstance(k, Reduce):
            k.expr = self._value(k.expr)
            if k.epilogue is not None:
                k.epilogue = self._result(k.epilogue, out)

    def _statement(self, s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return Store(s.target, tuple([self._value(c) for c in s.coords]), self._result(s.value, s.target.dtype))
        return rebuild(s, self._value, lambda body: [self._statement(b) for b in body])

    def _result(self, e: Expr, out: DType) -> Expr:
        """The value to store as `out`. A final cast to half float is dropped if the tensor is now float32."""
        last = e.op == "cast" and e.dtype in HALVES and out is F32
        value = self._value(e.args[0] if last else e)
        return cast(value, out) if out is F32 or out in HALVES else value

    def _value(self, e: Expr) -> Expr:
        if id(e) not in self._widened:
            self._widened[id(e)] = self._widen(e), e
        return self._widened[id(e)][0]

    def _widen(self, e: Expr) -> Expr:
        args = tuple([self._value(a) for a in e.args])
        if e.op == "at":
            return self._element(e, args)
        if e.dtype in HALVES:
            if e.op == "cast":
                return args[0] if e.args[0].dtype is e.dtype else cast(cast(args[0], e.dtype), F32)
            if e.op == "bitcast":
                return cast(bitcast(args[0], e.dtype), F32)
            return Expr(e.op, args, F32, e.value)
        if e.op == "cast" and e.args[0].dtype in HALVES:
            return cast(args[0], e.dtype)
        if e.op == "bitcast" and e.args[0].dtype in HALVES:
            return bitcast(cast(args[0], e.args[0].dtype), e.dtype)
        return with_args(e, args, e.dtype)

    def _element(self, e: Expr, coords: tuple[Expr, ...]) -> Expr:
        source = self._weight(_source(e.value))
        loaded = Expr("at", coords, source.dtype, source)
        return cast(loaded, F32) if e.dtype in HALVES else loaded

    def _weight(self, t: Tensor) -> Tensor:
        """The float32 copy of a small half-float weight; any other tensor itself."""
        small = t.dtype in HALVES and sh.is_static(t.shape) and sh.size(t.shape) <= self.largest
        if not small or not isinstance(t.kernel, Leaf) or t.kernel.kind not in ("weight", "constant"):
            return t
        if t.uid not in self.copies:
            copy = Map(cast(t.at(*[index(n) for n in range(t.rank)]), F32))
            self.copies[t.uid] = copy.making(t.shape, F32)
        return self.copies[t.uid].out


def _source(t: Tensor) -> Tensor:
    """The source of a map that only copies, now that both are float32; else t itself."""
    e = t.kernel.expr if isinstance(t.kernel, Map) else None
    if e is None or e.op != "at" or e.value.shape != t.shape:
        return t
    return e.value if all(c.op == "index" and c.value == n for n, c in enumerate(e.args)) else t
