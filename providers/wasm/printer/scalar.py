"""Prints expressions as scalar WebAssembly: values in i32 (integers up to 32 bits, normalised; bool 0 or 1), i64, f32,
f64."""

from __future__ import annotations

from pyruntime.ir.dtype import BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType, bounds
from pyruntime.ir.expr import Expr, walk

from .assembler import Function
from .faults import fault

LOADS: dict[DType, str] = {F32: "f32.load", F64: "f64.load", I32: "i32.load", U32: "i32.load", I64: "i64.load",
    U64: "i64.load", I16: "i32.load16_s", U16: "i32.load16_u", I8: "i32.load8_s", U8: "i32.load8_u",
    BOOL: "i32.load8_u"}  # fmt: skip
STORES = {1: "i32.store8", 2: "i32.store16"}
SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3}
_BITS = {"and", "or", "xor"}


def kind(dtype: DType) -> str:
    """The WebAssembly type that holds a value of this dtype."""
    if dtype is F32 or dtype is F64:
        return "f32" if dtype is F32 else "f64"
    return "i64" if dtype.size == 8 else "i32"


def load_name(dtype: DType) -> str:
    if dtype in LOADS:
        return LOADS[dtype]
    return "i32.load8_s" if dtype.kind == "i" else "i32.load8_u"  # int4, float8 and the like: one byte each


def store_name(dtype: DType) -> str:
    return STORES.get(dtype.size) or f"{kind(dtype)}.store"


class Values:
    """Prints expressions that leave values on the stack. A shared node is computed once, into a local, at its first
    use; locals of a guard's branch are dropped after it."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.shared: set[int] = set()
        self.ready: list[dict[int, int]] = [{}]

    def value(self, e: Expr) -> None:
        if id(e) not in self.shared:
            self.compute(e)
            return
        for scope in reversed(self.ready):
            if id(e) in scope:
                self.f.emit(scope[id(e)])
                return
        self.compute(e)
        local = self.ready[-1][id(e)] = self.f.local(self.kind(e))
        self.f.tee(local)

    def scoped(self, e: Expr) -> None:
        """Print the value of a guard's branch."""
        self.ready.append({})
        self.value(e)
        self.f.release(*self.ready.pop().values())

    def compute(self, e: Expr) -> None:
        raise NotImplementedError

    def kind(self, e: Expr) -> str:
        """The WebAssembly type of a value."""
        raise NotImplementedError


class Scalar(Values):
    """Prints expressions as scalars."""

    def __init__(self, f: Function, variables: dict[int, int], buffers: list[int], params: list[int]) -> None:
        super().__init__(f)
        self.variables = variables
        self.buffers = buffers
        self.params = params

    def root(self, *exprs: Expr) -> None:
        """Print expressions that share nodes only with each other; leaves their values on the stack in order."""
        self.begin(*exprs)
        for e in exprs:
            self.value(e)
        self.end()

    def begin(self, *exprs: Expr) -> None:
        """Find the nodes that these expressions share; `value` and `address` use them until `end`."""
        seen: set[int] = set()
        walked: set[int] = set()
        self.shared = set()
        for e in exprs:
            if id(e) in seen:
                self.shared.add(id(e))
            seen.add(id(e))
            for x in walk(e, walked):
                for a in x.args:
                    if a.args:
                        (self.shared if id(a) in seen else seen).add(id(a))
        self.ready = [{}]

    def end(self) -> None:
        self.f.release(*self.ready[0].values())

    def value(self, e: Expr) -> None:
        op = e.op
        f = self.f
        if op == "const":
            self._constant(e)
        elif op == "var":
            f.emit(self.variables[e.value])
        elif op == "param":
            f.emit(self.params[e.value])
        else:
            super().value(e)

    def kind(self, e: Expr) -> str:
        return kind(e.dtype)

    def _constant(self, e: Expr) -> None:
        code = e.dtype.is_float and kind(e.dtype) == "i32"  # of float8 and the like: 0, which fills caches
        getattr(self.f, kind(e.dtype))(int(e.value) if code else e.value)

    def compute(self, e: Expr) -> None:
        op = e.op
        if op == "load":
            self.address(e.value, e.args[0], e.dtype)
            self.f.mem(load_name(e.dtype))
        elif op == "guard":
            self._guard(e)
        elif op == "select":
            c, a, b = e.args
            self.value(a)
            self.value(b)
            self.value(c)
            self.f.emit("select")
        elif op in ("cast", "bitcast"):
            self.value(e.args[0])
            convert(self.f, e.args[0].dtype, e.dtype) if op == "cast" else self._bitcast(e.args[0].dtype, e.dtype)
        elif op == "checked":
            self._checked(e)
        elif len(e.args) == 1:
            self._unary(e)
        else:
            self._binary(e)

    def address(self, buffer: int, offset: Expr, dtype: DType) -> None:
        """Push the byte address of an element."""
        f = self.f
        f.emit(self.buffers[buffer])
        if offset.op == "const":
            if offset.value:
                f.i32(offset.value * dtype.size).emit("i32.add")
            return
        self.value(offset)
        if SHIFTS[dtype.size]:
            f.i32(SHIFTS[dtype.size]).emit("i32.shl")
        f.emit("i32.add")

    def _guard(self, e: Expr) -> None:
        c, a, b = e.args
        self.value(c)
        with self.f.if_(result=kind(e.dtype)):
            self.scoped(a)
            self.f.otherwise()
            self.scoped(b)

    def _checked(self, e: Expr) -> None:
        """Push the index if it is in range; else record a fault and push 0. This takes one comparison, like a clamp."""
        f, (i, extent, site) = self.f, e.args
        k = kind(i.dtype)
        with f.scratch(k, 2) as (given, at), f.scratch("i32", 1) as (count,):
            self.value(i)
            f.set(given)
            self.value(extent)
            f.set(count)
            f.emit(given)
            if e.value:
                f.emit(count)
                convert(f, I32, i.dtype)
                f.emit(f"{k}.add", given, given)
                getattr(f, k)(0).emit(f"{k}.lt_s", "select")
            f.tee(at).emit(count)
            convert(f, I32, i.dtype)
            f.emit(f"{k}.lt_u")
            with f.if_(result="i32"):
                f.emit(at)
                convert(f, i.dtype, I32)
                f.otherwise()
                self.value(site)
                f.emit(count, given)
                convert(f, i.dtype, I64)
                f.call(fault).i32(0)

    def _unary(self, e: Expr) -> None:
        f, x, k = self.f, e.args[0], kind(e.args[0].dtype)
        if e.op == "not":
            self.value(x)
            f.emit("i32.eqz")
        elif e.op == "isnan":
            self.value(x)
            with f.scratch(k, 1) as (v,):
                f.tee(v).emit(v, f"{k}.ne")
        elif k in ("f32", "f64"):
            self.value(x)
            f.emit(f"{k}.{'nearest' if e.op == 'round' else e.op}")
        elif e.op == "neg":
            getattr(f, k)(0)
            self.value(x)
            f.emit(f"{k}.sub")
            normalize(f, e.dtype)
        elif e.op == "bitnot":
            self.value(x)
            getattr(f, k)(-1).emit(f"{k}.xor")
            normalize(f, e.dtype)
        elif e.op == "abs":
            self._abs(x, k)
            normalize(f, e.dtype)
        elif e.op == "popcount":
            self.value(x)
            if x.dtype.size < 4:
                f.i32((1 << x.dtype.bits) - 1).emit("i32.and")
            f.emit(f"{k}.popcnt")
        else:  # floor, ceil, … of integers
            self.value(x)

    def _abs(self, x: Expr, k: str) -> None:
        f = self.f
        self.value(x)
        if x.dtype.kind != "i":
            return
        with f.scratch(k, 1) as (v,):
            f.set(v)
            getattr(f, k)(0).emit(v, f"{k}.sub", v, v)
            getattr(f, k)(0).emit(f"{k}.lt_s", "select")

    def _binary(self, e: Expr) -> None:
        f, (a, b) = self.f, e.args
        k = kind(a.dtype)
        is_float = k in ("f32", "f64")
        signed = "s" if a.dtype.kind == "i" else "u"
        if e.op in ("shl", "shr"):
            self._shift(e, k, signed)
        elif e.op in ("div", "rem", "mod") and not is_float:
            self._divide(e, k, signed)
        elif e.op in ("min", "max") and not is_float:
            self._pick(e, k, signed)
        else:
            self.value(a)
            self.value(b)
            if e.op in ("eq", "ne"):
                f.emit(f"{k}.{e.op}")
            elif e.op in ("lt", "le", "gt", "ge"):
                f.emit(f"{k}.{e.op}" if is_float else f"{k}.{e.op}_{signed}")
            else:
                f.emit(f"{k}.{e.op}")
                if e.op not in _BITS and not is_float:
                    normalize(f, e.dtype)

    def _shift(self, e: Expr, k: str, signed: str) -> None:
        """Shift. ONNX defines a count of the width or more to give 0 (or the sign); WebAssembly takes it modulo the
        width."""
        f, (a, b) = self.f, e.args
        bits = 64 if k == "i64" else 32
        self.value(a)
        self.value(b)
        if kind(b.dtype) != k:
            convert(f, b.dtype, a.dtype)
        op = "shl" if e.op == "shl" else f"shr_{signed}"
        if b.op == "const" and 0 <= b.value < bits:
            f.emit(f"{k}.{op}")
        else:
            self._shift_by_any(k, op, bits)
        if e.op == "shl":
            normalize(f, e.dtype)

    def _shift_by_any(self, k: str, op: str, bits: int) -> None:
        """Shift by any count. The count of a signed shift to the right is clamped to width - 1, which leaves the
        sign."""
        f, const = self.f, getattr(self.f, k)
        with f.scratch(k, 1) as (n,):
            f.tee(n)
            if op == "shr_s":
                const(bits - 1).emit(n)
                const(bits).emit(f"{k}.lt_u", "select", f"{k}.{op}")
            else:
                f.emit(f"{k}.{op}")
                const(0).emit(n)
                const(bits).emit(f"{k}.lt_u", "select")

    def _divide(self, e: Expr, k: str, signed: str) -> None:
        """Division by zero gives 0, the smallest number divided by -1 wraps: neither traps."""
        f, (a, b) = self.f, e.args
        const = getattr(f, k)
        if b.op == "param" or (b.op == "const" and b.value > 0):
            self.value(a)
            self.value(b)
            f.emit(f"{k}.{'div' if e.op == 'div' else 'rem'}_{signed}")
            if e.op == "mod" and signed == "s":
                with f.scratch(k, 2) as (r, d):
                    f.set(r)
                    self.value(b)
                    f.set(d)
                    self._floor(k, r, d)
            return
        with f.scratch(k, 4) as (x, y, d, r):
            self.value(a)
            f.set(x)
            self.value(b)
            f.set(y)
            const(1).emit(y, y, f"{k}.eqz")
            if signed == "s":
                f.emit(y)
                const(-1).emit(f"{k}.eq", "i32.or")
            f.emit("select").set(d)
            if e.op == "div":
                f.emit(x, d, f"{k}.div_{signed}").set(r)
                if signed == "s":
                    const(0).emit(r, f"{k}.sub", r, y)
                    const(-1).emit(f"{k}.eq", "select").set(r)
            else:
                f.emit(x, d, f"{k}.rem_{signed}").set(r)
                if e.op == "mod" and signed == "s":
                    self._floor(k, r, y)
                    f.set(r)
            const(0).emit(r, y, f"{k}.eqz", "select")
        normalize(f, e.dtype)

    def _floor(self, k: str, r: int, d: int) -> None:
        """Push r, or r + d if the remainder r and the divisor d have different signs."""
        f = self.f
        f.emit(r, d, f"{k}.add", r, r, d, f"{k}.xor")
        getattr(f, k)(0).emit(f"{k}.lt_s", r)
        getattr(f, k)(0).emit(f"{k}.ne", "i32.and", "select")

    def _pick(self, e: Expr, k: str, signed: str) -> None:
        f = self.f
        with f.scratch(k, 2) as (x, y):
            self.value(e.args[0])
            f.set(x)
            self.value(e.args[1])
            f.set(y)
            f.emit(x, y, x, y, f"{k}.{'lt' if e.op == 'min' else 'gt'}_{signed}", "select")

    def _bitcast(self, source: DType, to: DType) -> None:
        a, b = kind(source), kind(to)
        if a != b:
            self.f.emit(f"{b}.reinterpret_{a}")
        elif to.size < 4:
            normalize(self.f, to)


def normalize(f: Function, dtype: DType) -> None:
    """Wrap an i32 to the range of a narrow integer type."""
    if dtype is I8:
        f.emit("i32.extend8_s")
    elif dtype is I16:
        f.emit("i32.extend16_s")
    elif dtype.is_int and dtype.bits < 32:
        if dtype.kind == "u":
            f.i32((1 << dtype.bits) - 1).emit("i32.and")
        else:
            f.i32(32 - dtype.bits).emit("i32.shl").i32(32 - dtype.bits).emit("i32.shr_s")


def convert(f: Function, source: DType, to: DType) -> None:
    """Cast the value on the stack."""
    a, b = kind(source), kind(to)
    if to is BOOL:
        if source is not BOOL:
            getattr(f, a)(0).emit(f"{a}.ne")
    elif a in ("f32", "f64") and b in ("f32", "f64"):
        if a != b:
            f.emit("f64.promote_f32" if b == "f64" else "f32.demote_f64")
    elif a in ("f32", "f64"):
        sign = "u" if to.kind == "u" else "s"
        f.emit(f"{b}.trunc_sat_{a}_{sign}")
        if to.bits < 32:
            _clamp(f, to)
    elif b in ("f32", "f64"):
        f.emit(f"{b}.convert_{a}_{'s' if source.kind == 'i' else 'u'}")
    else:
        if a != b:
            f.emit("i32.wrap_i64" if b == "i32" else f"i64.extend_i32_{'s' if source.kind == 'i' else 'u'}")
        if to.bits < 32 and not (to.bits >= source.bits and to.kind == source.kind):
            normalize(f, to)


def _clamp(f: Function, dtype: DType) -> None:
    low, high = bounds(dtype)
    order = "u" if dtype.kind == "u" else "s"
    with f.scratch("i32", 1) as (v,):
        f.set(v).emit(v).i32(high).emit(v).i32(high).emit(f"i32.lt_{order}", "select").set(v)
        if dtype.kind == "i":
            f.emit(v).i32(low).emit(v).i32(low).emit("i32.gt_s", "select").set(v)
        f.emit(v)
