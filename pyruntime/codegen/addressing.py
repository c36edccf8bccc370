"""Shared steps of lowering: number buffers, parameters and variables, and turn coordinates into addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.codegen.loop_invariants import hoist_invariants
from pyruntime.codegen.loop_ir import LoopCode, Lowered, Param, Site
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32, DType
from pyruntime.ir.expr import Expr, affine, binary, cast, const, rewrite, rewrite_loads, walk
from pyruntime.ir.kernel import For, Kernel, Leaf, Let, Loops, Stmt, Store, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import rebuild, statements

# int32 constants in the code; others become parameters, so that more kernels share code. The least int32, with which a
# maximum begins, cannot be a parameter.
BAKED = frozenset((-(1 << 31), *range(-1, 9)))
PRIVATE, WORKGROUP = "private", "workgroup"  # kinds of a scratch tensor's leaf: local memory of GPUs
OFFSETS = frozenset((12, 16, 20, 24, 28))  # of the vectors at once in loops of procedures: parts of their instructions


class Lowering:
    """The numbering of one kernel's buffers, parameters and variables; turns `at` into `load`."""

    def __init__(self, kernel: Kernel, outputs: Sequence[Tensor] | None = None) -> None:
        outputs = kernel.outputs if outputs is None else outputs
        self.baked = BAKED | OFFSETS if isinstance(kernel, Loops) else BAKED
        self.tensors: list[Tensor] = []
        self.numbers: dict[int, int] = {}
        self.arrays = {t.uid: f"local{n}" for n, t in enumerate(local_memory(kernel))}
        self.baked |= {d for t in local_memory(kernel) for d in t.shape if isinstance(d, int)}  # drivers unroll loops
        self.params: dict[Param, int] = {}
        self.variables = 0
        self.written = {t.uid for t in outputs}
        if isinstance(kernel, Loops):
            self.written |= {t.uid for t in kernel.scratch}
        for t in (*outputs, *kernel.inputs):
            self.buffer(t)

    def buffer(self, t: Tensor) -> int | str:
        if t.uid in self.arrays:
            return self.arrays[t.uid]
        if t.uid not in self.numbers:
            self.numbers[t.uid] = len(self.tensors)
            self.tensors.append(t)
        return self.numbers[t.uid]

    def new(self, dtype: DType = I32) -> Expr:
        self.variables += 1
        return Expr("var", (), dtype, self.variables - 1)

    def let(self, value: Expr, body: list[Stmt], mutable: bool = False) -> Expr:
        """A new variable with this value, whose declaration is appended to `body`."""
        v = self.new(value.dtype)
        body.append(Let(v.value, value, mutable))
        return v

    def number(self, d: AnyDim) -> Expr:
        """A dim as a constant in the code if it is one of those, else as a parameter."""
        if isinstance(d, int) and d in self.baked:
            return const(d, I32)
        return self.parameter(d)

    def parameter(self, value: Param) -> Expr:
        return Expr("param", (), I32, self.params.setdefault(value, len(self.params)))

    def term(self, scale: AnyDim, x: Expr) -> Expr:
        return binary("mul", x, self.number(scale))

    def total(self, terms: Sequence[Expr]) -> Expr:
        out = terms[0] if terms else const(0, I32)
        for x in terms[1:]:
            out = binary("add", out, x)
        return out

    def finish(self, body: list[Stmt], work: AnyDim) -> Lowered:
        buffers = tuple([(t.dtype, t.uid in self.written) for t in self.tensors])
        written: set[int | str] = {n for n, (_, w) in enumerate(buffers) if w}
        body, self.variables = hoist_invariants(body, self.variables, written | {*self.arrays.values()})
        code = LoopCode(buffers, len(self.params), self.variables, body)
        return Lowered(code, self.tensors, list(self.params), work)

    # ── procedures ───────────────────────────────────────────────────────────────────────────────────────────────

    def loops(self, kernel: Loops) -> Lowered:
        self.variables = 1 + max((s.var for s in statements(kernel.body) if isinstance(s, (Let, For))), default=-1)
        body = [self.statement(s) for s in kernel.body]
        if len(body) == 1 and isinstance(body[0], For) and body[0].kind == "parallel":
            assert isinstance(kernel.body[0], For)
            return self.finish(body, kernel.body[0].extent.value)
        return self.finish([For(self.new().value, const(1, I32), body, "parallel")], 1)

    def statement(self, s: Stmt) -> Stmt:
        e = self.expression
        if isinstance(s, Store):
            at = self.address(s.target, [self.loaded(c) for c in s.coords])
            return Store(self.buffer(s.target), (at,), cast(e(s.value), s.target.dtype))
        return rebuild(s, e, lambda body: [self.statement(b) for b in body])

    def expression(self, x: Expr) -> Expr:
        return self.numbered(self.loaded(x))

    def loaded(self, x: Expr) -> Expr:
        """The expression with `load` in place of `at`."""

        def visit(e: Expr) -> Expr:
            return Expr("load", (self.address(e.value, e.args),), e.dtype, self.buffer(e.value))

        return rewrite_loads(x, visit)

    def numbered(self, x: Expr) -> Expr:
        """Dims and large int32 constants become parameters."""

        return rewrite(x, self.leaf)

    def leaf(self, e: Expr) -> Expr | None:
        """The parameter that replaces a leaf; None if the leaf stays."""
        if e.op == "site":
            return self.parameter(Site(e.value))
        if e.op == "range":
            return self.parameter(e.value)
        return self.number(e.value) if e.op == "dim" or (e.op == "const" and e.dtype is I32) else None

    def address(self, t: Tensor, coords: Sequence[Expr]) -> Expr:
        """The element offset of coordinates given as expressions of variables."""
        base, coefficients, opaque = split(t, coords)
        terms = [self.term(c, variable(k)) for k, c in coefficients.items()]
        terms += [self.term(stride, self.numbered(x)) for x, stride in opaque]
        return self.total([*terms, self.number(base)])


def local_memory(kernel: Kernel) -> list[Tensor]:
    """The scratch memory of a procedure that is in arrays of an invocation, or of a workgroup."""
    scratch = kernel.scratch if isinstance(kernel, Loops) else ()
    return [t for t in scratch if isinstance(t.kernel, Leaf) and t.kernel.kind in (PRIVATE, WORKGROUP)]


def variable(k: tuple[str, int]) -> Expr:
    return Expr(k[0], (), I32, k[1])


def split(t: Tensor, coords: Sequence[Expr]) -> tuple[AnyDim, dict[Any, AnyDim], list[tuple[Expr, AnyDim]]]:
    """An element offset as base + Σ coefficient·variable + Σ stride·(coordinate that is not affine)."""
    base: AnyDim = 0
    coefficients: dict[Any, AnyDim] = {}
    opaque: list[tuple[Expr, AnyDim]] = []
    for coord, stride in zip(coords, sh.strides(t.shape), strict=True):
        form = affine(coord)
        if form is None:
            opaque.append((coord, stride))
            continue
        base = base + form[0] * stride
        for k, c in form[1].items():
            coefficients[k] = coefficients.get(k, 0) + c * stride
    return base, coefficients, opaque


class Indexing:
    """Turns expressions over the axes of a tensor into expressions over variables. index_of: for each axis the
    variables whose sum is its index; vector: the innermost variable."""

    vector: Expr | None = None

    def __init__(self, work: Lowering) -> None:
        self.work = work
        self.index_of: dict[int, list[Expr]] = {}

    def load(self, x: Expr) -> Expr:
        """The expression with `load` in place of `at`, and variables in place of indices."""

        def go(e: Expr, memo: dict[int, Expr]) -> Expr:
            if id(e) in memo:
                return memo[id(e)]
            if e.op == "at":
                out = Expr("load", (self.address(e.value, e.args, go, memo),), e.dtype, self.work.buffer(e.value))
            elif e.op == "index":
                out = self.work.total(self.index_of.get(e.value, []))
            elif e.args:
                args = tuple([go(a, memo) for a in e.args])
                out = Expr(e.op, args, e.dtype, e.value)
            else:
                found = self.work.leaf(e)
                out = e if found is None else found
            memo[id(e)] = out
            return out

        return go(x, {})

    def address(self, t: Tensor, coords: Sequence[Expr], go: Any = None, memo: Any = None) -> Expr:
        base, coefficients, opaque = split(t, coords)
        work = self.work
        outer: list[Expr] = []
        last: list[Expr] = []
        for key, c in coefficients.items():
            if c == 0:
                continue
            of_axis = self.index_of.get(key[1], []) if key[0] == "index" else [variable(key)]
            for v in of_axis:  # the innermost variable is added last, so that the rest is loop-invariant
                (last if v is self.vector else outer).append(work.term(c, v))
        outer += [work.term(stride, go(x, memo)) for x, stride in opaque]
        return work.total([work.total([*outer, work.number(base)]), *last])


def without_units(e: Expr, extents: Sequence[AnyDim]) -> Expr:
    """The expression with 0 for the indices of axes of extent 1."""
    units = {n: const(0, I32) for n, d in enumerate(extents) if d == 1}
    if not any(x.op == "index" and x.value in units for x in walk(e)):
        return e
    return rewrite(e, lambda x: units.get(x.value) if x.op == "index" else None)


def accesses(e: Expr) -> tuple[list[dict[Any, AnyDim]], set[int]]:
    """The coefficients of the indices in each access, and the axes whose index occurs anywhere else."""
    accesses: list[dict[Any, AnyDim]] = []
    raw: set[int] = set()
    seen: set[int] = set()

    def go(x: Expr) -> None:
        if id(x) in seen:
            return
        seen.add(id(x))
        if x.op == "index":
            raw.add(x.value)
        elif x.op == "at":
            _, coefficients, opaque = split(x.value, x.args)
            accesses.append(coefficients)
            for coord, _ in opaque:
                go(coord)
        else:
            for a in x.args:
                go(a)

    go(e)
    return accesses, raw
