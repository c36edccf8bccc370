"""Prints expressions as four 32-bit lanes of SIMD. A bool is a mask; narrow integers are widened and normalised."""

from __future__ import annotations

from typing import Any

from pyruntime.ir.dtype import BOOL, F32, I8, I16, I32, U8, U16, U32, DType
from pyruntime.ir.dtype import bounds as limits
from pyruntime.ir.expr import COMPARE, Expr, binary, const, walk

from .assembler import Function
from .scalar import Scalar, Values

LANES = 4
NATURAL = (F32, I32, U32)
_WIDE = {I8: "i8x16", U8: "i8x16", BOOL: "i8x16", I16: "i16x8", U16: "i16x8"}
_FLOAT = {op: op for op in "add sub mul div min max neg abs sqrt floor ceil trunc".split()} | {"round": "nearest"}
_INTEGER = ("add", "sub", "mul", "neg", "abs", "min", "max", "shl", "shr", "bitnot")
ZERO, ONE = const(0, I32), const(1, I32)
_LOGIC = {"and": "v128.and", "or": "v128.or", "xor": "v128.xor"}


def is_narrow(dtype: DType) -> bool:
    return dtype in _WIDE and dtype is not BOOL


def has_lanes(dtype: DType) -> bool:
    return dtype in NATURAL or dtype in _WIDE


def slope(offset: Expr, var: int) -> int | None:
    """Return the growth of an element offset with a variable: 0, 1, or None for other amounts."""
    if offset.op == "var":
        return int(offset.value == var)
    if not offset.args:
        return 0
    parts = [slope(a, var) for a in offset.args]
    if all(p == 0 for p in parts):
        return 0
    if offset.op in ("add", "sub") and None not in parts:
        total = parts[0] + parts[1] if offset.op == "add" else parts[0] - parts[1]  # type: ignore[operator]
        return total if total in (0, 1) else None
    return None


def growth(offset: Expr, var: int) -> Expr | None:
    """Return the growth of an element offset with a variable; None if it is not constant."""
    rates: dict[int, Expr | None] = {}
    for e in walk(offset):  # operands before their users, and shared ones once
        rates[id(e)] = ONE if e.op == "var" and e.value == var else _rate(e, [rates[id(a)] for a in e.args])
    return rates[id(offset)]


def _rate(e: Expr, rates: list[Expr | None]) -> Expr | None:
    """Return the growth of an operation, given the growth of its operands."""
    if all(rate is ZERO for rate in rates):
        return ZERO
    if e.op not in ("add", "sub", "mul"):
        return None
    (a, b), (x, y) = e.args, rates
    if x is None or y is None:
        return None
    if e.op == "mul":
        return binary("mul", a, y) if x is ZERO else binary("mul", x, b) if y is ZERO else None
    return binary(e.op, x, y)


def without_constant(offset: Expr) -> tuple[Expr, int]:
    """Split an offset into an expression and a constant that is not negative."""
    if offset.op == "add" and offset.args[1].op == "const" and offset.args[1].value > 0:
        return offset.args[0], offset.args[1].value
    return offset, 0


class Lanes:
    """Which expressions can be printed as lanes of a loop over `var`. varying: variables that differ by lane"""

    def __init__(self, var: int, varying: set[int]) -> None:
        self.var = var
        self.varying = varying
        self._depends: dict[int, tuple[Expr, bool]] = {}
        self._fits: dict[int, tuple[Expr, bool]] = {}

    def depends(self, e: Expr) -> bool:
        """Whether the value differs from lane to lane."""
        found = self._depends.get(id(e))
        if found is None:
            result = (e.op == "var" and (e.value == self.var or e.value in self.varying)) or any(
                [self.depends(a) for a in e.args]
            )
            found = self._depends[id(e)] = (e, result)
        return found[1]

    def fits(self, e: Expr) -> bool:
        found = self._fits.get(id(e))
        if found is None:
            found = self._fits[id(e)] = (e, self._check(e))
        return found[1]

    def _check(self, e: Expr) -> bool:
        if not has_lanes(e.dtype):
            return False
        if not self.depends(e):
            return True
        op = e.op
        if op == "var":
            return True
        if op == "load":
            return self.step(e) > 0 or self._gathers(e)
        if op == "guard":
            fits = self.fits(e.args[1]) and self.fits(e.args[2])
            return fits and (not self.depends(e.args[0]) or self.fits(e.args[0]) and self._guards(e))
        if not all([self.fits(a) for a in e.args]):
            return False
        return self._operation(e)

    def _guards(self, e: Expr) -> bool:
        """Whether lanes may take different sides of a guard: a side that loads can then be computed lane by lane."""
        return not any(map(_loads, e.args[1:])) or (e.dtype is not BOOL and not self._lane_variable(e))

    def step(self, load: Expr) -> int:
        """Return the distance of lanes in elements if it is 1 or 2, else 0."""
        (offset,) = load.args
        if self._lane_variable(offset):
            return 0
        rate = growth(offset, self.var)
        found = rate.value if rate is not None and rate.op == "const" else 0
        return found if found == 1 or (found == 2 and load.dtype is not BOOL) else 0

    def _gathers(self, load: Expr) -> bool:
        """Whether each lane has its own, data-dependent offset: a table lookup."""
        (offset,) = load.args
        decided = self._lane_variable(offset) or any(x.op == "load" for x in walk(offset))
        return load.dtype in NATURAL and decided and self.fits(offset)

    def _lane_variable(self, e: Expr) -> bool:
        return any(x.op == "var" and x.value in self.varying for x in walk(e))

    def _operation(self, e: Expr) -> bool:
        op, source = e.op, e.args[0].dtype
        if op in ("select", "not", "isnan"):
            return True
        if op == "bitcast":
            return source in NATURAL and e.dtype in NATURAL
        if op == "cast":
            return not (source is F32 and is_narrow(e.dtype) and e.dtype.bits < 8)
        if source is F32:
            return op in _FLOAT or op in COMPARE
        if source is BOOL:
            return op in _LOGIC or op in ("eq", "ne")
        if op in ("shl", "shr"):
            return not self.depends(e.args[1])
        return op in _INTEGER or op in _LOGIC or op in COMPARE


class Vector(Values):
    """Prints lane expressions; expressions equal for all lanes are scalars that are splat."""

    def __init__(self, scalar: Scalar, lanes: Lanes, locals_: dict[int, int], relaxed: bool) -> None:
        super().__init__(scalar.f)
        self.relaxed = relaxed
        self.scalar = scalar
        self.lanes = lanes
        self.locals = locals_  # v128 locals of lane variables
        self.pointers: dict[Any, int] = {}  # locals with addresses by buffer and offset
        self.invariants: dict[Any, int] = {}  # v128 locals of loop invariants by key

    def root(self, e: Expr) -> None:
        self.shared = set()
        seen: set[int] = set()
        self._count(e, seen)
        self.ready = [{}]
        self.value(e)
        self.f.release(*self.ready[0].values())

    def _count(self, e: Expr, seen: set[int]) -> None:
        for a in e.args:
            if not a.args and self.lanes.depends(e):
                continue
            if id(a) in seen:
                self.shared.add(id(a))
            else:
                seen.add(id(a))
                if self.lanes.depends(a):
                    self._count(a, seen)

    def kind(self, e: Expr) -> str:
        return "v128"

    def compute(self, e: Expr) -> None:
        f = self.f
        if not self.lanes.depends(e):
            self._splat(e)
        elif e.op == "var":
            if e.value == self.lanes.var:
                f.emit(self.scalar.variables[e.value], "i32x4.splat")
                f.v128(b"".join(n.to_bytes(4, "little") for n in range(4))).emit("i32x4.add")
            else:
                f.emit(self.locals[e.value])
        elif e.op == "load":
            self._load(e)
        elif e.op == "guard":
            self._guard(e)
        elif e.op == "select":
            self.value(e.args[1])
            self.value(e.args[2])
            self.value(e.args[0])
            # equal for masks: one instruction in V8 instead of three
            f.emit("i32x4.relaxed_laneselect" if self.relaxed else "v128.bitselect")
        elif e.op == "cast":
            self._cast(e)
        elif e.op == "bitcast":
            self.value(e.args[0])
        elif e.op == "not":
            self.value(e.args[0])
            f.emit("v128.not")
        elif e.op == "isnan":
            self.value(e.args[0])
            with f.scratch("v128", 1) as (v,):
                f.tee(v).emit(v, "f32x4.ne")
        else:
            self._operation(e)

    def _cast(self, e: Expr) -> None:
        self.value(e.args[0])
        if self._cuts(e):
            self.f.emit("i32x4.relaxed_trunc_f32x4_s")
            normalize(self.f, e.dtype)
        else:
            convert(self.f, e.args[0].dtype, e.dtype, clipped=inside(e.args[0], e.dtype))

    def _cuts(self, e: Expr) -> bool:
        """Whether NaN may become either 0 or -2^31, depending on the host; the low bytes of both are 0. This takes one
        instruction on x86 instead of five for saturation."""
        return self.relaxed and inside(e.args[0], e.dtype)

    def stored(self, e: Expr) -> None:
        """Print a value, as `root` does, for a store that keeps only its low bytes."""
        if e.op == "cast" and self._cuts(e) and self.lanes.depends(e):
            self.root(e.args[0])
            self.f.emit("i32x4.relaxed_trunc_f32x4_s")
        else:
            self.root(e.args[0] if e.op == "cast" and is_narrow(e.dtype) and e.args[0].dtype is I32 else e)

    def _load(self, e: Expr) -> None:
        step = self.lanes.step(e)
        if not step:
            self._gather(e)
            return
        more = self.address(e.value, e.args[0], e.dtype)
        if step == 1 and e.dtype in NATURAL:
            self.f.mem("v128.load", more)
            return
        if more:
            self.f.i32(more).emit("i32.add")
        (load if step == 1 else load_each_second)(self.f, e.dtype)

    def _gather(self, e: Expr) -> None:
        f = self.f
        self.value(e.args[0])
        with f.scratch("v128", 1) as (places,):
            f.i32(2).emit("i32x4.shl", self.scalar.buffers[e.value], "i32x4.splat", "i32x4.add").set(places)
            for n in reversed(range(LANES)):
                f.emit(places).lane("i32x4.extract_lane", n)
            f.mem("v128.load32_zero")
            for n in range(1, LANES):
                f.mem_lane("v128.load32_lane", n)

    def address(self, buffer: int, offset: Expr, dtype: DType) -> int:
        """Push the byte address of an element. Returns what to add to it, as the constant of a load or store."""
        rest, constant = without_constant(offset)
        if self.pointers and (found := self.pointers.get((buffer, rest.key()))):
            self.f.emit(found)
            return constant * dtype.size
        self.scalar.ready = [{}]
        self.scalar.shared = set()
        self.scalar.address(buffer, offset, dtype)
        return 0

    def _splat(self, e: Expr) -> None:
        if self.invariants and e.key() in self.invariants:
            self.f.emit(self.invariants[e.key()])
        else:
            self.splat(e)

    def splat(self, e: Expr) -> None:
        f = self.f
        if e.op == "const" and e.dtype is F32:
            f.f32x4(e.value)
            return
        if e.op == "const" and e.dtype is not BOOL:
            f.i32x4(e.value)
            return
        if e.op == "load" and e.dtype in NATURAL:
            f.mem("v128.load32_splat", self.address(e.value, e.args[0], e.dtype))
            return
        self.scalar.root(e)
        if e.dtype is BOOL:
            with f.scratch("i32", 1) as (v,):
                f.set(v).i32(0).emit(v, "i32.sub")
        f.emit("f32x4.splat" if e.dtype is F32 else "i32x4.splat")

    def _guard(self, e: Expr) -> None:
        c, a, b = e.args
        if self.lanes.depends(c):
            self._guard_by_lane(c, a, b)
            return
        self.scalar.root(c)
        with self.f.if_(result="v128"):
            self.scoped(a)
            self.f.otherwise()
            self.scoped(b)

    def _guard_by_lane(self, c: Expr, a: Expr, b: Expr) -> None:
        """Print a guard. If a side loads, it is computed in lanes if all lanes take the first side, else lane by lane.
        Otherwise the second side is computed in all lanes if any lane takes it."""
        if _loads(a) or _loads(b):
            self._guard_alone(c, a, b)
            return
        with self.f.scratch("v128", 2) as (chosen, first):
            self.value(c)
            self.f.set(chosen)
            self.value(a)
            self.f.set(first).emit(chosen, "i32x4.all_true")
            with self.f.if_(result="v128"):
                self.f.emit(first)
                self.f.otherwise().emit(first)
                self.scoped(b)
                self.f.emit(chosen, "v128.bitselect")

    def _guard_alone(self, c: Expr, a: Expr, b: Expr) -> None:
        f, counter = self.f, self.scalar.variables[self.lanes.var]
        one, lanes = Expr("guard", (c, a, b), a.dtype), "f32x4" if a.dtype is F32 else "i32x4"
        self.value(c)
        f.emit("i32x4.all_true")
        with f.if_(result="v128"), f.scratch("v128", 1) as (found,):
            self.scoped(a)
            f.otherwise()
            for n in range(LANES):
                if n:
                    f.emit(found)
                self.scalar.root(one)
                (f.lane(f"{lanes}.replace_lane", n) if n else f.emit(f"{lanes}.splat")).set(found)
                f.add(counter, 1 if n < LANES - 1 else 1 - LANES)
            f.emit(found)

    def _operation(self, e: Expr) -> None:
        f, op, source = self.f, e.op, e.args[0].dtype
        if op == "abs" and source.kind == "u":
            self.value(e.args[0])
            return
        if op in ("shl", "shr"):
            self._shift(e, "shl" if op == "shl" else "shr_s" if source.kind == "i" else "shr_u")
        elif op in ("min", "max") and source is F32 and is_number(e.args[1]):
            # x.pmin(y) is y < x ? y : x, so NaN stays: one instruction on x86 instead of seven
            self.value(e.args[0])
            self.value(e.args[1])
            f.emit(f"f32x4.p{op}")
        else:
            for a in e.args:
                self.value(a)
            f.emit(_instruction(op, source))
        if is_narrow(e.dtype) and op in ("add", "sub", "mul", "neg", "abs", "shl", "bitnot"):
            normalize(f, e.dtype)

    def _shift(self, e: Expr, op: str) -> None:
        """A count of the width or more gives 0 (or the sign); WebAssembly takes the count modulo the width."""
        f, (a, b) = self.f, e.args
        self.value(a)
        self.scalar.root(b)
        if b.op == "const" and 0 <= b.value < 32:
            f.emit(f"i32x4.{op}")
            return
        with f.scratch("i32", 1) as (n,):
            f.tee(n)
            if op == "shr_s":
                f.i32(31).emit(n).i32(32).emit("i32.lt_u", "select", "i32x4.shr_s")
            else:  # all ones if the count fits
                f.emit(f"i32x4.{op}").i32(0).emit(n).i32(32).emit("i32.lt_u", "i32.sub", "i32x4.splat", "v128.and")


def _loads(e: Expr) -> bool:
    """Whether an expression has operations that only the side taken by a guard may execute."""
    return any(x.op in ("load", "checked") for x in walk(e))


def inside(e: Expr, dtype: DType) -> bool:
    """Whether a float is clipped to the range of an integer type (or NaN)."""
    bounds: dict[str, float] = {}
    while e.op in ("min", "max") and e.dtype is F32 and is_number(e.args[1]):
        bounds.setdefault(e.op, e.args[1].value)
        e = e.args[0]
    return is_narrow(dtype) and "min" in bounds and "max" in bounds and _fits(bounds["max"], bounds["min"], dtype)


def _fits(low: float, high: float, dtype: DType) -> bool:
    least, most = limits(dtype)
    return least <= low <= high <= most


def is_number(e: Expr) -> bool:
    """Whether the expression is a constant other than NaN."""
    return e.op == "const" and e.value == e.value


def _instruction(op: str, source: DType) -> str:
    if op in _LOGIC:
        return _LOGIC[op]
    if op == "bitnot":
        return "v128.not"
    if source is F32:
        return f"f32x4.{_FLOAT.get(op, op)}"
    sign = "s" if source.kind == "i" else "u"
    if op in ("lt", "le", "gt", "ge", "min", "max"):
        return f"i32x4.{op}_{sign}"
    return f"i32x4.{op}"


def load(f: Function, dtype: DType) -> None:
    """Load four elements from the address on the stack."""
    if dtype in NATURAL:
        f.mem("v128.load")
        return
    sign = "s" if dtype.kind == "i" else "u"
    if dtype.size == 2:
        f.mem(f"v128.load16x4_{sign}")
        return
    f.mem("v128.load32_zero").emit(f"i16x8.extend_low_i8x16_{sign}", f"i32x4.extend_low_i16x8_{sign}")
    if dtype is BOOL:
        f.i32x4(0).emit("i32x4.ne")


def load_each_second(f: Function, dtype: DType) -> None:
    """Load every second element from the address on the stack on, four in all; reads at most one element past them."""
    with f.scratch("i32", 1) as (at,):
        f.set(at)
        if dtype in NATURAL:
            f.emit(at).mem("v128.load").emit(at).mem("v128.load", 16).shuffle32(0, 2, 4, 6)
            return
        sign = "s" if dtype.kind == "i" else "u"
        if dtype.size == 2:
            f.emit(at).mem("v128.load").i32(16).emit("i32x4.shl").i32(16).emit(f"i32x4.shr_{sign}")
            return
        f.emit(at).mem("v128.load64_zero").i32(8).emit("i16x8.shl").i32(8).emit(f"i16x8.shr_{sign}")
        f.emit(f"i32x4.extend_low_i16x8_{sign}")


def store(f: Function, dtype: DType, more: int = 0) -> None:
    """(address, lanes) -> : store four elements at the address + `more` bytes, which are 0 for narrow types."""
    if dtype in NATURAL:
        f.mem("v128.store", more)
        return
    if dtype is BOOL:
        f.i32x4(1).emit("v128.and")
    # lanes are in range: pick their low bytes
    picks = [4 * lane + byte for lane in range(4) for byte in range(dtype.size)]
    with f.scratch("v128", 1) as (v,):
        f.tee(v).emit(v).shuffle(picks + [0] * (16 - len(picks)))
    f.mem_lane("v128.store64_lane" if dtype.size == 2 else "v128.store32_lane", 0)


def normalize(f: Function, dtype: DType) -> None:
    if dtype.kind == "u":
        f.i32x4((1 << dtype.bits) - 1).emit("v128.and")
    else:
        n = 32 - dtype.bits
        f.i32(n).emit("i32x4.shl").i32(n).emit("i32x4.shr_s")


def convert(f: Function, source: DType, to: DType, clipped: bool = False) -> None:
    """clipped: floats are known to fit the integer type or be NaN"""
    if to is BOOL:
        if source is F32:
            f.f32x4(0.0).emit("f32x4.ne")
        elif source is not BOOL:
            f.i32x4(0).emit("i32x4.ne")
    elif source is BOOL:
        if to is F32:
            f.f32x4(1.0).emit("v128.and")
        else:
            f.i32x4(1).emit("v128.and")
    elif source is F32:
        # narrow types through int32: five instructions in V8, about twelve through uint32
        f.emit(f"i32x4.trunc_sat_f32x4_{'u' if to is U32 else 's'}")
        if is_narrow(to) and not clipped:
            _clamp(f, to)
    elif to is F32:
        f.emit(f"f32x4.convert_i32x4_{'s' if source.kind == 'i' else 'u'}")
    elif is_narrow(to) and not (to.bits >= source.bits and to.kind == source.kind):
        normalize(f, to)


def _clamp(f: Function, dtype: DType) -> None:
    low, high = limits(dtype)
    f.i32x4(high).emit("i32x4.min_s").i32x4(low).emit("i32x4.max_s")
