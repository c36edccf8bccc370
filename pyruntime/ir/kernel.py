"""The kernel vocabulary: operators are lowered to these kernels, and providers run them.

`Tensor`s are SSA values; each is made by one `Kernel`:

  Leaf    a feed, a weight, a value of an enclosing block                       (no code)
  Map     out[i, j, …] = expr(i, j, …)
  Reduce  out[i, …] = combine over the reduction axes of expr(i, …, r, …)
  Alias   the same elements in row-major order under another shape             (no code)
  Loops   a procedure written as statements (top-k, cumulative sums, …)
  Call    a routine with one contract that each provider schedules by hand     (matmul, conv, …)
  Host    Python at run time (strings)
  Read    an integer tensor's elements become symbols                          (ends a segment)
  If, Loop  sub-blocks run by the executor

A *view* (transpose, slice, expand) is a Map whose expression is a bare `at`; fusion makes it free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar, Self

from pyruntime.errors import ShapeError
from pyruntime.ir.dtype import I32, DType
from pyruntime.ir.expr import Expr, Scalar, as_expr, cast, dim, index, rewrite
from pyruntime.ir.shape import AnyDim, Shape
from pyruntime.ir.symbol import Symbol

_ids = count()
Binds = tuple[tuple[int, int, Symbol], ...]  # (output, axis, symbol for that dim)


class Tensor:
    """A value of the program: its shape (ints and Dims), element type, and the kernel that makes it."""

    __slots__ = ("dtype", "index", "kernel", "name", "shape", "uid")

    def __init__(self, shape: Sequence[AnyDim], dtype: DType, kernel: Kernel, index: int = 0, name: str = "") -> None:
        self.shape: Shape = tuple(shape)
        self.dtype = dtype
        self.kernel = kernel
        self.index = index
        self.name = name
        self.uid = next(_ids)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def at(self, *coords: Scalar) -> Expr:
        """The element at these coordinates (int32 expressions, dims or ints), one for each axis. Errors: ShapeError
        if their number is not the tensor's rank, for example when an operator gets a tensor of an unexpected rank."""
        if len(coords) != len(self.shape):
            shape = ", ".join(map(str, self.shape))
            raise ShapeError(f'"{self.name}" of shape [{shape}] is read as if it had rank {len(coords)}')
        return Expr("at", tuple([_coordinate(c) for c in coords]), self.dtype, self)

    def __getitem__(self, coords: Any) -> Expr:
        return self.at(*coords) if isinstance(coords, tuple) else self.at(coords)

    def __repr__(self) -> str:
        return f"%{self.uid}:{self.dtype}[{', '.join(map(str, self.shape))}]"


def _coordinate(c: Scalar) -> Expr:
    if isinstance(c, Expr):
        return c if c.dtype is I32 else cast(c, I32)
    return dim(c)


# ── kernels ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False, slots=True)
class Kernel:
    """The common part of kernels. node: the label of the ONNX node that the kernel comes from, for messages and
    profiles; is_backward: whether it computes a gradient"""

    outputs: tuple[Tensor, ...] = field(default=(), init=False)
    node: str = field(default="", init=False)
    is_backward: bool = field(default=False, init=False)
    blocks: ClassVar[tuple[Block, ...]] = ()  # inner blocks

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return ()

    @property
    def out(self) -> Tensor:
        return self.outputs[0]

    def making(self, shape: Sequence[AnyDim], dtype: DType, node: str = "") -> Self:
        """Give the kernel its one output, a new tensor, and its node."""
        self.outputs, self.node = (Tensor(shape, dtype, self),), node
        return self

    def replaces(self, other: Kernel, outputs: tuple[Tensor, ...]) -> None:
        """Do some work of another kernel: for its node, and make these outputs."""
        self.outputs, self.node, self.is_backward = outputs, other.node, other.is_backward


@dataclass(eq=False, slots=True)
class Leaf(Kernel):
    """kind: "feed", "weight" (value: graph.Weight or bytes), "state" (a weight that runs change; without a value it
    begins with zeros), or "block" (an input of a sub-block). flushed: subnormal elements are loaded as zeros."""

    kind: str
    value: Any = None
    flushed: bool = False


@dataclass(eq=False, slots=True)
class Map(Kernel):
    """Axis n of the output is index(n) in `expr`."""

    expr: Expr

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tensors_in(self.expr)


@dataclass(eq=False, slots=True)
class Reduce(Kernel):
    """out[i…] = epilogue(op over r of expr): index(0 … rank-1) are the output's axes, index(rank …) the reduction
    axes with these extents; in `epilogue` arg(0) stands for the reduced value. op: sum prod max min (NaN propagates),
    any all; argmax argmin give the row-major number (int64) of the first extreme, argmax_last argmin_last of the last.
    An empty reduction gives the neutral element. round_block: a provider may round the first factor of this sum of
    products to 8 bits, with a scale for so many neighbouring steps; 0: it may not."""

    op: str
    extents: Shape
    expr: Expr
    epilogue: Expr | None = None
    round_block: int = 0

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tensors_in(self.expr) if self.epilogue is None else tensors_in(self.expr, self.epilogue)


@dataclass(eq=False, slots=True)
class Alias(Kernel):
    """A reshape, at no cost: its base and its output share one buffer."""

    base: Tensor

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.base,)


def root(t: Tensor) -> Tensor:
    """The tensor whose buffer holds this one."""
    while isinstance(t.kernel, Alias) or isinstance(t.kernel, Loops) and t.kernel.bases:
        t = t.kernel.base if isinstance(t.kernel, Alias) else t.kernel.bases[t.index]
    return t


@dataclass(eq=False, slots=True)
class Loops(Kernel):
    """A procedure. Its body addresses `args`, `outputs` and `scratch` tensors by coordinates. Scratch is memory of
    the call (its Leaf kind is "scratch"); `name` is for profiles. unit_is_row: iteration u of the outermost loop makes
    row u of the one output; rows are numbered row-major over all axes except those of the inner loops. bases: none, or
    an argument for each output, whose memory the output takes over; elements that the body does not store keep their
    values."""

    name: str
    args: tuple[Tensor, ...]
    scratch: tuple[Tensor, ...]
    body: list[Stmt]
    unit_is_row: bool = False
    bases: tuple[Tensor, ...] = ()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.args


def updates_state(kernel: Kernel) -> bool:
    """Whether it changes a state. Such kernels begin a step: a run that finds an index out of range before has then
    changed nothing."""
    base = root(kernel.outputs[0]).kernel if isinstance(kernel, Loops) else None
    return isinstance(base, Leaf) and base.kind == "state"


@dataclass(eq=False, slots=True)
class Call(Kernel):
    """A routine with one contract, defined by `meaning`, a Map, Reduce or Loops with the same operands; for a whole
    ONNX node ("onnx:Gelu") a Block with the call's outputs. attrs are plain ints, floats, strings, Dims and tuples.

    Passes may add:
    strided: operand n is a `View` of the tensor in args
    order: axis n of the output is axis order[n] of the definition's output
    epilogue: an expression over the output's axes in which arg(0) is the routine's result
    packed: operands that are in the routine's own layout
    plan: from a routine, a hashable value that states how it computes the call
    """

    routine: str
    args: tuple[Tensor | None, ...]
    attrs: dict[str, Any]
    meaning: Map | Reduce | Loops | Block
    strided: dict[int, View] = field(default_factory=dict)
    order: tuple[int, ...] | None = None
    epilogue: Expr | None = None
    packed: frozenset[int] = frozenset()
    plan: Any = None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        own = tuple(a for a in self.args if a is not None)
        more = () if self.epilogue is None else tensors_in(self.epilogue)
        return tuple({t.uid: t for t in (*own, *more)}.values())

    def operand(self, n: int) -> Tensor:
        """Operand n, which must not be absent."""
        t = self.args[n]
        assert t is not None
        return t

    def definition(self) -> Map | Reduce | Loops:
        """The definition, with order and epilogue, as a kernel that makes these outputs. Not of a whole node."""
        assert not isinstance(self.meaning, Block)
        out = replace(self.meaning)
        out.replaces(self, self.outputs)
        if not isinstance(out, Loops):
            if self.order is not None:
                axes = {axis: index(n) for n, axis in enumerate(self.order)}
                out.expr = rewrite(out.expr, lambda e: axes.get(e.value) if e.op == "index" else None)
            if isinstance(out, Reduce):
                out.epilogue = self.epilogue
            elif self.epilogue is not None:
                own = out.expr
                out.expr = rewrite(self.epilogue, lambda e: own if e.op == "arg" else None)
        return out


@dataclass(frozen=True, slots=True)
class View:
    """An operand inside another tensor: its element (i, j, …) is at offset + Σ index · stride of that tensor."""

    tensor: Tensor
    offset: AnyDim
    strides: tuple[AnyDim, ...]


@dataclass(eq=False, slots=True)
class Host(Kernel):
    """A Python function on whole arrays. fn: its name in `pyruntime.host.FUNCTIONS`; binds: symbols of output dims that
    the kernel binds; provider: the name of the provider on arrays that runs the kernel, or ""."""

    fn: str
    args: tuple[Tensor | None, ...]
    attrs: dict[str, Any]
    binds: Binds = ()
    provider: str = ""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(a for a in self.args if a is not None)


@dataclass(eq=False, slots=True)
class Read(Kernel):
    """Binds symbols[i] to element i of an integer (or bool) tensor."""

    source: Tensor
    symbols: tuple[Symbol, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.source,)


@dataclass(eq=False, slots=True)
class Block:
    """Kernels in order. inputs: Leaf tensors that are set on entry (loop-carried values). Kernels may also use any
    tensor of the enclosing blocks. A kernel of the block makes each output; no output is an input."""

    inputs: tuple[Tensor, ...] = ()
    kernels: list[Kernel] = field(default_factory=list)
    outputs: tuple[Tensor, ...] = ()


@dataclass(eq=False, slots=True)
class If(Kernel):
    """Runs `then` if the bool scalar holds, else `orelse`. Output dims that differ are symbols (`binds`)."""

    condition: Tensor
    then: Block
    orelse: Block
    binds: Binds = ()

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.condition, *free(self.then), *free(self.orelse))

    @property
    def blocks(self) -> tuple[Block, ...]:  # type: ignore[override]
        return self.then, self.orelse


@dataclass(eq=False, slots=True)
class Loop(Kernel):
    """ONNX Loop. Body inputs: iteration number (int64 scalar), condition (bool scalar), carried values; outputs:
    condition, carried values, then values to stack. `trip` (int64 scalar) and `condition` may be None. enters: (body
    input, axis, symbol) for dims of carried inputs that may change, bound on entry. Outputs: carried, then stacked;
    binds: as for If. limit: the most iterations, if a dim; is_counted: whether the condition always holds; is_part:
    whether it has few steps, of a longer loop."""

    trip: Tensor | None
    condition: Tensor | None
    carried: tuple[Tensor, ...]
    body: Block
    enters: Binds = ()
    binds: Binds = ()
    limit: AnyDim | None = None
    is_counted: bool = False
    is_part: bool = False

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (*[t for t in (self.trip, self.condition) if t is not None], *self.carried, *free(self.body))

    @property
    def blocks(self) -> tuple[Block, ...]:  # type: ignore[override]
        return (self.body,)


def free(block: Block) -> tuple[Tensor, ...]:
    """Tensors that a block uses but does not make."""
    made = {t.uid for t in block.inputs}
    out: dict[int, Tensor] = {}
    for kernel in block.kernels:
        for t in kernel.inputs:
            if t.uid not in made:
                out[t.uid] = t
        made.update(t.uid for t in kernel.outputs)
    out |= {t.uid: t for t in block.outputs if t.uid not in made}
    return tuple(out.values())


def tensors_in(*exprs: Expr) -> tuple[Tensor, ...]:
    """Tensors loaded by expressions, in order of first use."""
    return exprs[0].tensors() if len(exprs) == 1 else tuple(dict.fromkeys([t for e in exprs for t in e.tensors()]))


# ── statements of loop kernels ────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False, slots=True)
class Let:
    """Declares variable `var`; with `mutable`, Set may change it."""

    var: int
    value: Expr
    mutable: bool = False


@dataclass(eq=False, slots=True)
class Set:
    var: int
    value: Expr


@dataclass(eq=False, slots=True)
class Store:
    """tensor[coords] = value, converted to the tensor's type (wraps or rounds). Lowered: `target` is a buffer number
    and coords one element offset."""

    target: Any
    coords: tuple[Expr, ...]
    value: Expr


@dataclass(eq=False, slots=True)
class For:
    """for var in range(extent). kind: "serial"; "parallel": iterations are independent (those of the outermost loop are
    the work units of threads, inner ones may be divided among a GPU's workgroup); "vector": iterations are independent
    except for Accum, and may run in SIMD lanes; "steps": the body uses no mutable variable of outer loops
    (codegen/step_ranges.py)"""

    var: int
    extent: Expr
    body: list[Stmt]
    kind: str = "serial"


@dataclass(eq=False, slots=True)
class While:
    condition: Expr
    body: list[Stmt]
    most: AnyDim | None = None  # iterations at most, if known


@dataclass(eq=False, slots=True)
class When:
    condition: Expr
    then: list[Stmt]
    orelse: list[Stmt]


@dataclass(eq=False, slots=True)
class Accum:
    """var = op(var, value), op in sum prod max min any all. A vector loop may reassociate it."""

    var: int
    op: str
    value: Expr


Stmt = Let | Set | Store | For | While | When | Accum


class Var:
    """A mutable variable of a loop kernel. `v.get` is its current value; `v.set(e)` assigns."""

    __slots__ = ("_builder", "get")

    def __init__(self, builder: Builder, expr: Expr) -> None:
        self._builder = builder
        self.get = expr

    def set(self, value: Scalar) -> None:
        self._builder.emit(Set(self.get.value, as_expr(value, self.get.dtype)))


class Builder:
    """Builds the body of a `Loops` kernel from Python's with-blocks.

    with k.parallel(rows) as i:
        total = k.var(0.0, F32)
        with k.loop(n) as j:
            total.set(total.get + x[i, j])
            k.store(out, (i, j), total.get)
    """

    def __init__(self) -> None:
        self._stack: list[list[Stmt]] = [[]]
        self._vars = 0

    @property
    def body(self) -> list[Stmt]:
        return self._stack[0]

    def emit(self, stmt: Stmt) -> None:
        self._stack[-1].append(stmt)

    def new(self, dtype: DType) -> Expr:
        self._vars += 1
        return Expr("var", (), dtype, self._vars - 1)

    def let(self, value: Expr) -> Expr:
        """A variable with this value, which is computed here, once, before later stores."""
        v = self.new(value.dtype)
        self.emit(Let(v.value, value))
        return v

    def var(self, value: Scalar, dtype: DType) -> Var:
        v = self.new(dtype)
        self.emit(Let(v.value, as_expr(value, dtype), mutable=True))
        return Var(self, v)

    def store(self, target: Tensor, coords: Sequence[Scalar], value: Scalar) -> None:
        self.emit(Store(target, tuple(_coordinate(c) for c in coords), as_expr(value, target.dtype)))

    @contextmanager
    def _block(self, make: Callable[[list[Stmt]], Stmt]) -> Iterator[None]:
        self._stack.append([])
        yield
        self.emit(make(self._stack.pop()))

    @contextmanager
    def loop(self, extent: Scalar, kind: str = "serial", var: Expr | None = None) -> Iterator[Expr]:
        """var: the loop's variable, if it has one already (`new`)"""
        v = self.new(I32) if var is None else var
        with self._block(lambda body: For(v.value, _coordinate(extent), body, kind)):
            yield v

    def parallel(self, extent: Scalar) -> Any:
        return self.loop(extent, "parallel")

    def when(self, condition: Expr) -> Any:
        return self._block(lambda body: When(condition, body, []))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The else branch of the preceding `when`."""
        last = self._stack[-1][-1]
        assert isinstance(last, When)
        self._stack.append([])
        yield
        last.orelse = self._stack.pop()

    def while_(self, condition: Expr, most: AnyDim | None = None) -> Any:
        return self._block(lambda body: While(condition, body, most))
