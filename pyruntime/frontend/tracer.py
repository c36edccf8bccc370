"""The Tracer: the interface through which lowerings define operators. It records kernels and knows shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from math import prod
from typing import Any

from pyruntime.errors import NeedsValue, ShapeError, UnsupportedOp
from pyruntime.frontend.access_bounds import accesses_to_check
from pyruntime.frontend.own_gradients import OwnGradients
from pyruntime.frontend.requirements import Requirements
from pyruntime.ir import reference
from pyruntime.ir import shape as sh
from pyruntime.ir.broadcasting import broadcast, caps
from pyruntime.ir.dtype import I64, STRING, DType
from pyruntime.ir.expr import (
    Expr,
    Scalar,
    as_expr,
    cast,
    dim,
    guard,
    index,
    instantiate,
    pick,
)  # fmt: skip
from pyruntime.ir.kernel import (
    Alias,
    Block,
    Builder,
    Call,
    Host,
    Kernel,
    Leaf,
    Loops,
    Map,
    Read,
    Reduce,
    Tensor,
)  # fmt: skip
from pyruntime.ir.shape import AnyDim, Dim, Undecided
from pyruntime.ir.symbol import VALUE, Symbol

KNOWN_LIMIT = 4096  # elements; larger tensors are data, not shape arithmetic
MOST_AXES = 64
MOST_JOINED = 64  # tensors that a single kernel concatenates
LARGEST_DIM = 2**31 - 1  # kernels use int32 indices


class Tracer(OwnGradients, Requirements):
    """Records the kernels of one Program. Dims of shapes are ints or Dims. Axes may be negative everywhere.

    elements(weight): decodes a weight to Python numbers
    wanted: which outputs of the current node the graph uses
    opset: the opset of the current node
    updates: by uid of a tensor, the states that a run which asks for it must have changed (see `TracedGraph`)
    memory: bytes that a step of training may need; 0: no limit
    products: see `CodeWriter`
    """

    def __init__(self, elements: Callable[[Any], list[Any]]) -> None:
        super().__init__()
        self.block = Block()
        self.names: dict[int, str] = {}  # names of values of the main graph, by uid
        self.opset = 0
        self.wanted: tuple[bool, ...] = ()
        self.elements = elements
        self.subgraph: Callable[[Any, Sequence[Any]], list[Any]] = _no_subgraphs  # set by trace_graph
        self.named: Callable[[str], Any] = _no_names  # the value with a name in the graph; set by trace_graph
        self._known: dict[int, list[Any] | None] = {}
        self.updates: dict[int, list[Tensor]] = {}
        self.memory, self.products = 0, False
        self.fresh: list[Symbol] = []  # symbols that kernels of this Program bind
        self._read: dict[Symbol, Tensor] = {}  # the tensor of which a symbol is an element

    # ── recording ────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, kernel: Kernel, outputs: Sequence[tuple[Sequence[AnyDim], DType]]) -> tuple[Tensor, ...]:
        kernel.node, kernel.is_backward = self.node, self.is_backward
        for shape, _ in outputs:
            self._check_shape(shape)
        kernel.outputs = tuple([Tensor(s, d, kernel, i) for i, (s, d) in enumerate(outputs)])
        self.block.kernels.append(kernel)
        self._check_accesses(kernel)
        return kernel.outputs

    def _check_shape(self, shape: Sequence[AnyDim]) -> None:
        """Refuse impossible shapes. Executors check dims that are symbolic here."""
        if len(shape) > MOST_AXES:
            raise UnsupportedOp(f"a tensor of rank {len(shape)}; up to {MOST_AXES} are supported", node=self.node)
        for d in shape:
            if isinstance(d, int) and not 0 <= d <= LARGEST_DIM:
                raise ShapeError(f"a tensor cannot have the shape {list(shape)}", node=self.node)

    def _check_accesses(self, kernel: Kernel) -> None:
        """Require that the kernel's accesses are in bounds."""
        for inside, message in accesses_to_check(kernel):
            self.require(inside, message)

    @contextmanager
    def sub_block(self) -> Iterator[Block]:
        """Record into an inner block. Symbols that are read inside are unknown outside, because the block may not
        run."""
        outer, known = self.block, self._known
        self.block, self._known = Block(), dict(known)
        self.depth += 1
        try:
            yield self.block
        finally:
            self.block, self._known = outer, known
            self.depth -= 1

    def leaf(self, kind: str, shape: Sequence[AnyDim], dtype: DType, value: Any = None, name: str = "") -> Tensor:
        """Return a tensor that no kernel makes; see `kernel.Leaf`."""
        if dtype.kind == "c":
            raise UnsupportedOp(f'"{name}" is {dtype}: complex numbers are not supported', node=self.node)
        self._check_shape(shape)
        kernel = Leaf(kind, value)
        kernel.outputs = (Tensor(shape, dtype, kernel, 0, name),)
        return kernel.out

    def constant(self, values: Sequence[Any], dtype: DType, shape: Sequence[int] | None = None) -> Tensor:
        """A constant from Python numbers, row-major; 1-D without a shape."""
        values = list(values)
        return self.leaf("constant", (len(values),) if shape is None else shape, dtype, values)

    def scalar(self, value: Any, dtype: DType) -> Tensor:
        return self.constant([value], dtype, ())

    def symbol(self, lower: int | None = 0) -> Symbol:
        """A new symbol for a Read, Host or control kernel to bind."""
        self.fresh.append(Symbol(VALUE, place=(len(self.fresh) + 1,), lower=lower))
        return self.fresh[-1]

    # ── maps and views ───────────────────────────────────────────────────────────────────────────────────────────

    def compute(self, shape: Sequence[AnyDim], fn: Callable[..., Scalar], dtype: DType | None = None) -> Tensor:
        """out[i, j, …] = fn(i, j, …), an expression over the indices."""
        e = as_expr(fn(*[index(n) for n in range(len(shape))]), dtype)
        return self.add(Map(e), [(shape, dtype or e.dtype)])[0]

    def map(self, template: Expr, *xs: Tensor) -> Tensor:
        """Elementwise with ONNX broadcasting. X, Y, Z, W in the template are the arguments."""
        shape = self.broadcast(*xs)
        return self.add(*self._map(shape, instantiate(template, [self.aligned(x, shape) for x in xs])))[0]

    def map_onto(self, template: Expr, x: Tensor, *xs: Tensor) -> Tensor:
        """`map` whose result has x's shape: broadcasting must not enlarge it."""
        y = self.map(template, x, *xs)
        self.require_shape("the result", y, x.shape)
        return y

    @staticmethod
    def _map(shape: Sequence[AnyDim], e: Expr) -> tuple[Kernel, list[tuple[Sequence[AnyDim], DType]]]:
        return Map(e), [(shape, e.dtype)]

    def broadcast(self, *xs: Tensor) -> sh.Shape:
        return broadcast(*[x.shape for x in xs])

    def aligned(self, x: Tensor, shape: sh.Shape, axes: Sequence[Expr] | None = None) -> Expr:
        """The element of x, broadcast to a larger shape, at that shape's indices (or at `axes`)."""
        skip = len(shape) - x.rank
        axes = axes or [index(n) for n in range(len(shape))]
        coords: list[Scalar] = []
        for n, d in enumerate(x.shape):
            full = shape[skip + n]
            if d == full:
                coords.append(axes[skip + n])
            elif d == 1:
                coords.append(0)
            elif caps(full, d):
                self.require_equal(d, full, "dims do not broadcast")
                coords.append(axes[skip + n])
            else:
                self.require_broadcasts(d, full)
                coords.append(axes[skip + n] * dim(1 - sh.compare("eq", d, 1)))
        return x.at(*coords)

    def cast(self, x: Tensor, dtype: DType) -> Tensor:
        return x if x.dtype is dtype else self.compute(x.shape, lambda *i: cast(x.at(*i), dtype))

    def fill(self, shape: Sequence[AnyDim], value: Scalar, dtype: DType) -> Tensor:
        return self.compute(shape, lambda *_: as_expr(value, dtype), dtype)

    def dims(self, values: Sequence[AnyDim], dtype: DType = I64) -> Tensor:
        """A 1-D integer tensor of dims."""
        if sh.is_static(values):
            return self.constant(values, dtype)
        return self.compute((len(values),), lambda i: cast(pick(i, values), dtype))

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Axis n of the result is axis perm[n] of x."""
        if list(perm) == list(range(x.rank)):
            return x
        if sorted(perm) != list(range(x.rank)):
            raise ShapeError(f"perm {list(perm)} is not a permutation of {x.rank} axes", node=self.node)
        back = sorted(range(x.rank), key=lambda n: perm[n])
        return self.compute([x.shape[p] for p in perm], lambda *i: x.at(*[i[b] for b in back]))

    def expand(self, x: Tensor, shape: Sequence[AnyDim]) -> Tensor:
        """Broadcast to a shape."""
        full = broadcast(x.shape, tuple(shape))
        for d, whole in zip(reversed(shape), reversed(full), strict=False):
            self.require_broadcasts(d, whole)
        return x if full == x.shape else self.add(*self._map(full, self.aligned(x, full)))[0]

    def slice(self, x: Tensor, axis: int, start: AnyDim, size: AnyDim, step: AnyDim = 1) -> Tensor:
        """`size` elements of one axis from `start`; step may be negative."""
        axis = self.axis(axis, x.rank)
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        return self.compute(
            shape, lambda *i: x.at(*[c * dim(step) + dim(start) if n == axis else c for n, c in enumerate(i)])
        )

    def concat(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        """Join along an axis."""
        axis = self.axis(axis, xs[0].rank)
        for x in xs[1:]:
            if x.rank != xs[0].rank:
                raise ShapeError(f"concat of tensors of rank {xs[0].rank} and {x.rank}", node=self.node)
            for n in range(x.rank):
                if n != axis:
                    self.require_equal(x.shape[n], xs[0].shape[n], f"concat along axis {axis}: dims of axis {n} differ")
        while len(xs) > MOST_JOINED:
            xs = [self._joined(xs[n : n + MOST_JOINED], axis) for n in range(0, len(xs), MOST_JOINED)]
        return self._joined(xs, axis)

    def _joined(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        ends = list(accumulate(x.shape[axis] for x in xs))

        def body(*i: Expr) -> Expr:
            def among(first: int, last: int) -> Expr:
                if last - first > 1:
                    middle = (first + last) // 2
                    return guard(i[axis] < dim(ends[middle - 1]), among(first, middle), among(middle, last))
                start = ends[first - 1] if first else 0
                return xs[first].at(*[c - dim(start) if k == axis else c for k, c in enumerate(i)])

            return among(0, len(xs))

        return self.compute((*xs[0].shape[:axis], ends[-1], *xs[0].shape[axis + 1 :]), body)

    def reshape(self, x: Tensor, shape: Sequence[AnyDim]) -> Tensor:
        """The same elements with another shape, at no cost."""
        shape = tuple(shape)
        if shape == x.shape:
            return x
        sizes = sh.size(x.shape), sh.size(shape)
        same = sh.compare("eq", *sizes)
        if same == 1:
            return self._reshaped(x, shape)
        text = f"cannot reshape {list(x.shape)} to {list(shape)}: {sizes[0]} and {sizes[1]}"
        if len(text) > 160:  # dims can be long expressions; the error also shows the values of their symbols
            text = f"cannot reshape {list(x.shape)} to a shape of another size"
        self.require(same, text)
        return self._reshaped(x, shape)

    def _reshaped(self, x: Tensor, shape: Sequence[AnyDim]) -> Tensor:
        return self.add(Alias(x), [(shape, x.dtype)])[0]

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        rank = x.rank + len(axes)
        new = {self.axis(a, rank) for a in axes}
        rest = iter(x.shape)
        return self.reshape(x, [1 if n in new else next(rest) for n in range(rank)])

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        gone = self.axes(axes, x.rank)
        for a in gone:
            self.require_equal(x.shape[a], 1, f"axis {a} cannot be removed, it does not have 1 element")
        return self.reshape(x, [d for n, d in enumerate(x.shape) if n not in gone])

    # ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────

    def reduce(self, op: str, x: Tensor, axes: Sequence[int], keepdims: bool = True, of: Expr | None = None) -> Tensor:
        """Reduce over axes. of: a template that is applied to each element first; op: see `kernel.Reduce`."""
        gone = self.axes(axes, x.rank)
        kept = [n for n in range(x.rank) if n not in gone]

        def body(*i: Expr) -> Expr:
            place = dict(zip([*kept, *gone], i, strict=True))
            e = x.at(*[place[n] for n in range(x.rank)])
            return e if of is None else instantiate(of, [e])

        out = self.reduce_compute(op, [x.shape[n] for n in kept], [x.shape[n] for n in gone], body)
        return self.reshape(out, [1 if n in gone else d for n, d in enumerate(x.shape)]) if keepdims else out

    def reduce_compute(
        self, op: str, shape: Sequence[AnyDim], extents: Sequence[AnyDim], fn: Callable[..., Expr]
    ) -> Tensor:
        """out[i…] = op over r… of fn(i…, r…)."""
        e = fn(*[index(n) for n in range(len(shape) + len(extents))])
        dtype = I64 if op.startswith("arg") else e.dtype
        return self.add(Reduce(op, tuple(extents), e), [(shape, dtype)])[0]

    # ── procedures, routines, host ───────────────────────────────────────────────────────────────────────────────

    def loops(
        self,
        name: str,
        args: Sequence[Tensor],
        outputs: Sequence[tuple[Sequence[AnyDim], DType]],
        body: Callable[..., None],
        scratch: Sequence[tuple[Sequence[AnyDim], DType]] = (),
    ) -> tuple[Tensor, ...]:
        """A procedure. body(k, *outputs, *scratch) builds its statements with the Builder k."""
        kernel = Loops(name, tuple(args), tuple([self.leaf("scratch", s, d) for s, d in scratch]), [])
        outs = self.add(kernel, outputs)
        k = Builder()
        body(k, *outs, *kernel.scratch)
        kernel.body = k.body
        self._check_accesses(kernel)
        return outs

    def call(self, routine: str, args: Sequence[Tensor | None], meaning: Tensor, **attrs: Any) -> Tensor:
        """Replace the kernel that was just recorded by a call of a routine.

        meaning: the result of that Reduce, Map or Loops, which defines what the routine computes. A provider that
        claims the call schedules it by hand from `args` and `attrs`; any other provider runs the definition. The
        compiler refuses a name that no provider has."""
        kernel = meaning.kernel
        assert self.block.kernels[-1] is kernel and isinstance(kernel, (Map, Reduce, Loops))
        self.block.kernels.pop()
        plain = {name: tuple(v) if isinstance(v, list) else v for name, v in attrs.items()}
        named = Call(routine, tuple(args), plain, kernel)
        named.node, named.outputs = self.node, kernel.outputs
        for t in named.outputs:
            t.kernel = named
        self.block.kernels.append(named)
        return meaning

    def host(
        self,
        fn: str,
        args: Sequence[Tensor | None],
        outputs: Sequence[tuple[Sequence[AnyDim | None], DType]],
        **attrs: Any,
    ) -> tuple[Tensor, ...]:
        """Call a Python function on whole arrays at run time. A dim of None is known only at run time."""
        binds: list[tuple[int, int, Symbol]] = []
        shapes: list[tuple[Sequence[AnyDim], DType]] = []
        for o, (shape, dtype) in enumerate(outputs):
            dims: list[AnyDim] = []
            for axis, d in enumerate(shape):
                if d is None:
                    symbol = self.symbol()
                    binds.append((o, axis, symbol))
                    d = sh.dim_of(symbol)
                dims.append(d)
            shapes.append((dims, dtype))
        return self.add(Host(fn, tuple(args), attrs, tuple(binds)), shapes)

    # ── compile-time values ─────────────────────────────────────────────────────────────────────────────────────────

    def known(self, x: Tensor) -> list[Any] | None:
        """The elements of x if they depend only on constants and dims: ints (or Dims), floats, bools; else None."""
        todo = [x]
        while todo:  # iterative, because a chain may exceed Python's recursion limit
            operand = None if todo[-1].uid in self._known else self._unevaluated_operand(todo[-1])
            if operand is not None:
                todo.append(operand)
                continue
            t = todo.pop()
            if t.uid not in self._known:
                self._known[t.uid] = self._evaluate(t)
        return self._known[x.uid]

    def _unevaluated_operand(self, x: Tensor) -> Tensor | None:
        """An operand of x that must be evaluated before x and is not evaluated yet."""
        if not isinstance(x.kernel, (Map, Reduce, Alias, Loops)) or not _is_small(x):
            return None
        for t in x.kernel.inputs:
            if t.uid not in self._known:
                return t
            if self._known[t.uid] is None:
                return None
        return None

    def known_tensors(self) -> set[int]:
        """Uids of tensors whose elements a lowering asked for and got."""
        return {uid for uid, values in self._known.items() if values is not None}

    def _evaluate(self, x: Tensor) -> list[Any] | None:
        kernel = x.kernel
        if not _is_small(x):
            return None
        if isinstance(kernel, Leaf):
            if kernel.kind == "constant":
                return kernel.value
            return decoded(self.elements(kernel.value), x.dtype) if kernel.kind == "weight" else None
        if not isinstance(kernel, (Map, Reduce, Alias, Loops)):
            return None
        arrays: dict[int, reference.Array] = {}
        for source in kernel.inputs:
            values = self._known[source.uid]
            if values is None:
                return None
            arrays[source.uid] = (source.shape, values)
        try:
            return reference.evaluate(kernel, arrays, [t.shape for t in kernel.outputs])[x.index][1]
        except (Undecided, TypeError):
            return None

    def ints(self, x: Tensor, lower: int | None = None, refusal: str = "") -> list[Any]:
        """The elements of an integer tensor of known size, as ints, Dims, or symbols that are read at run time.

        lower: the least allowed value, such as 0 for counts; smaller values are refused with the message `refusal`, now
            or at run time"""
        what = f'"{x.name}"' if x.name else "a value"
        values = self.known(x)
        if values is not None:
            for v in values:
                if lower is not None:
                    text = refusal or f"{what} is {v}, must be at least {lower}"
                    self.require(sh.compare("le", lower, v), text)
            return values
        if not sh.is_static(x.shape):
            raise self.needs(x)
        symbols = tuple(self.symbol(lower) for _ in range(prod(x.shape)))
        if lower is not None:
            text = refusal or f"{what} must be at least {lower}"
            for d in map(sh.dim_of, symbols):
                self.guards.append((sh.at_least(d, lower), text, self.node))
                self.require(sh.compare("le", d, LARGEST_DIM), f"{what} must be at most {LARGEST_DIM}")
        self.add(Read(x, symbols), ())
        self._read |= dict.fromkeys(symbols, x)
        self._known[x.uid] = [sh.dim_of(s) for s in symbols]
        return list(self._known[x.uid] or ())

    def static(self, x: Tensor) -> list[Any]:
        """The elements of x as plain numbers. If they are known only at run time, the session specialises on them."""
        values = self.known(x)
        symbols = frozenset().union(*[sh.symbols(v) for v in values or () if isinstance(v, Dim)])
        if symbols and all(s.is_extent for s in symbols):
            raise NeedsValue("", node=self.node, symbols=symbols)
        if values is None or symbols:
            raise self.needs(x)
        return values

    def settle(self, shape: sh.Shape) -> None:
        """Require static dims: the session specialises on symbols that are dims of inputs."""
        symbols = frozenset().union(*map(sh.symbols, shape))
        if symbols and all(s.is_extent for s in symbols):
            raise NeedsValue("", node=self.node, symbols=symbols)

    def needs(self, x: Tensor) -> NeedsValue:
        """The exception to raise if the value of x must be known. It names x or, inside a nested graph or function, the
        first value of the main graph on which x depends; "" if x depends on the iteration of a loop, which must then be
        unrolled."""
        asked, seen, todo = "", {x.uid}, [x]
        while todo:
            y = todo.pop(0)
            values = self._known.get(y.uid)
            if isinstance(y.kernel, Leaf) and y.kernel.kind in ("weight", "constant"):
                continue
            if y.uid in self.names and (y is x or values is None):
                asked = asked or self.names[y.uid]
            elif isinstance(y.kernel, Leaf) and y.kernel.kind == "block":
                return NeedsValue("", node=self.node)
            else:
                follows = self._follows_from(y) if y is not x else (*y.kernel.inputs, *self._follows_from(y))
                todo += [s for s in follows if s.uid not in seen]
                seen.update(s.uid for s in follows)
        return NeedsValue(asked, node=self.node)

    def _follows_from(self, x: Tensor) -> Sequence[Tensor]:
        """The tensors from which a value is computed; for a value that is known as dims, the tensors from which the
        dims are read."""
        values = self._known.get(x.uid)
        symbols = [s for v in values or () if isinstance(v, Dim) for s in sh.symbols(v)]
        read = [self._read[s] for s in symbols if s in self._read]
        return x.kernel.inputs if values is None or x in read else read


def decoded(values: list[Any], dtype: DType) -> list[Any]:
    """Elements of a weight in the engine's representation: str for strings, which the reader returns as bytes."""
    return [v.decode(errors="replace") for v in values] if dtype is STRING else values


def _no_subgraphs(graph: Any, args: Sequence[Any]) -> list[Any]:
    raise TypeError("this tracer has no graph, so it cannot trace a nested one")


def _no_names(name: str) -> Any:
    raise TypeError("this tracer has no graph, so its values have no names")


def _is_small(x: Tensor) -> bool:
    return sh.is_static(x.shape) and prod(x.shape) <= KNOWN_LIMIT
