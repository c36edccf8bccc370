"""Prints the loop form, one WebAssembly function per kernel (docs/architecture.md has the calling convention).

A "vector" loop runs four lanes at a time if every expression in it can (vector.py); its remainder and all other loops
are scalar (scalar.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyruntime.codegen.block_epilogue import INPUTS
from pyruntime.codegen.half_floats import legalize
from pyruntime.codegen.loop_ir import LoopCode, map_expressions
from pyruntime.ir.dtype import BOOL, F32, I32, DType
from pyruntime.ir.expr import Expr, binary, walk
from pyruntime.ir.kernel import Accum, For, Let, Set, Stmt, Store, When, While
from pyruntime.ir.reference import COMBINE, NEUTRAL
from pyruntime.ir.statements import nodes, statements
from pyruntime.mathlib import expand

from .assembler import Function, Module
from .loop_invariants import assigned, invariants
from .scalar import Scalar, kind, store_name
from .vector import LANES, NATURAL, ZERO, Lanes, Vector, growth, has_lanes, is_narrow, slope, store, without_constant

# Alternating accumulators of a reduction, which hide the latency of an addition. Native, 256 rows of 1024, us with
# 1, 2, 4, 8: softmax 714 612 538 548, layer normalisation 137 102 108 133, sum 47 24 23 21, sum of squares 79 45 29 30
BANKS = 4


def print_kernel(module: Module, name: str, code: LoopCode, relaxed: bool = False) -> Function:
    """Add a kernel to a module. Its argument block has its buffers, then its parameters."""
    f = module.function(name, ["i32", "i32", "i32", "i32"])
    return _Printer(f, code, range(len(code.buffers) + code.params), relaxed).kernel()


def print_epilogue(module: Module, name: str, code: LoopCode, words: Sequence[int], relaxed: bool = False) -> Function:
    """Add a routine's epilogue (codegen/block_epilogue.py) to a module: (args, *INPUTS). words: positions of the
    epilogue's buffers and parameters in the routine's argument block"""
    f = module.function(name, ["i32"] * (1 + len(INPUTS)), export=False)
    return _Printer(f, code, words, relaxed).epilogue()


class _Printer:
    def __init__(self, f: Function, code: LoopCode, words: Sequence[int], relaxed: bool = False) -> None:
        self.f = f
        self.relaxed = relaxed
        self.code = code = map_expressions(legalize(code), expand)
        self.variables: dict[int, int] = {}
        buffers = f.locals("i32", len(code.buffers))
        params = f.locals("i32", code.params)
        for word, local in zip(words, [*buffers, *params], strict=True):
            f.emit(0).mem("i32.load", 4 * word).set(local)
        self.scalar = Scalar(f, self.variables, buffers, params)

    def epilogue(self) -> Function:
        (once,) = self.code.body
        assert isinstance(once, For)
        self.variables.update(enumerate(self.f.params[1:]))
        self.block(once.body)
        return self.f

    def kernel(self) -> Function:
        (outer,) = self.code.body
        assert isinstance(outer, For)
        _, begin, end, _ = self.f.params
        unit = self.variable(outer.var, I32)
        self.f.emit(begin).set(unit)
        with self.f.until(unit, end):
            self.block(outer.body)
        return self.f

    def variable(self, var: int, dtype: DType) -> int:
        """Return the local of a variable."""
        if var not in self.variables:
            self.variables[var] = self.f.local(kind(dtype))
        return self.variables[var]

    # ── scalars ──────────────────────────────────────────────────────────────────────────────────────────────────

    def block(self, body: list[Stmt]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        f = self.f
        if isinstance(s, (Let, Set)):
            self.scalar.root(s.value)
            f.set(self.variable(s.var, s.value.dtype))
        elif isinstance(s, Accum):
            v = Expr("var", (), s.value.dtype, s.var)
            self.scalar.root(binary(COMBINE[s.op], v, s.value))
            f.set(self.variables[s.var])
        elif isinstance(s, Store):
            self._store(s)
        elif isinstance(s, For):
            self._for(s)
        elif isinstance(s, While):
            with f.block() as out, f.loop() as again:
                self.scalar.root(s.condition)
                f.emit("i32.eqz").br_if(out)
                self.block(s.body)
                f.br(again)
        elif isinstance(s, When):
            self.scalar.root(s.condition)
            with f.if_():
                self.block(s.then)
                if s.orelse:
                    f.otherwise()
                    self.block(s.orelse)

    def _store(self, s: Store) -> None:
        dtype = self.code.buffers[s.target][0]
        self.scalar.begin(s.coords[0], s.value)
        self.scalar.address(s.target, s.coords[0], dtype)
        self.scalar.value(s.value)
        self.scalar.end()
        self.f.mem(store_name(dtype))

    def _for(self, s: For) -> None:
        with self._bounds(s) as (counter, end):
            in_lanes = s.kind == "vector" and self._lanes(s, counter, end)
            if in_lanes and s.extent.op == "const" and s.extent.value % LANES == 0:
                return  # no remainder
            if s.kind == "serial" and self.f.module.imports and s.body and isinstance(s.body[-1], For):
                self._rows(s, counter, end)
            with self.f.until(counter, end):
                self.block(s.body)

    def _rows(self, s: For, counter: int, end: int) -> None:
        """Let the host's machine code compute products of all rows, after which the counter is at its end."""
        from .native_products import call_product  # pages do not have it

        inner = s.body[-1]
        assert isinstance(inner, For)
        if inner.kind == "vector" and call_product(self.scalar, self.code, inner, s):
            with self.f.if_():
                self.f.emit(end).set(counter)

    @contextmanager
    def _bounds(self, s: For) -> Iterator[tuple[int, int]]:
        """Yield the locals of a loop's counter, which is 0, and of its extent."""
        counter = self.variable(s.var, I32)
        with self.f.scratch("i32", 1) as (end,):
            self.scalar.root(s.extent)
            self.f.set(end).i32(0).set(counter)
            yield counter, end

    # ── lanes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _lanes(self, s: For, counter: int, end: int) -> bool:
        """Emit the four-lane part of a vector loop, if it has one. The counter ends at the start of the scalar
        remainder. Returns whether it has one."""
        plan = _Plan(s, self.code)
        if not plan.ok:
            return False
        f = self.f
        flat = len(plan.sums) in (1, 2) and not any(isinstance(b, For) for b in s.body)
        banks = self._banks(plan.sums, BANKS if flat else 1)
        inner = {var: f.local("v128") for var in plan.lanes.varying}
        vector = Vector(self.scalar, plan.lanes, inner, self.relaxed)
        with self._after_native(s, vector, counter, end), self._hoisted(s, vector):
            if flat:
                self._rounds(s, vector, banks, counter, end)
            self._rounds(s, vector, banks[:1], counter, end)
        for var, (op, dtype) in plan.sums.items():
            for bank in banks[1:]:
                f.emit(banks[0][var], bank[var])
                self._combine(op, dtype)
                f.set(banks[0][var])
        self._totals(plan.sums, banks[0])
        f.release(*[v for bank in banks for v in bank.values()], *inner.values())
        return True

    @contextmanager
    def _after_native(self, s: For, vector: Vector, counter: int, end: int) -> Iterator[None]:
        """Let the host's machine code compute the first elements; the body of the context is for those that it
        leaves."""
        if not self.f.module.imports:
            yield
            return
        from .native_lanes import call_lanes  # pages do not have these
        from .native_products import call_product

        dtypes = [dtype for dtype, _ in self.code.buffers]
        with self.f.block() as done:
            if call_product(self.scalar, self.code, s):
                with self.f.if_():
                    self.f.emit(end).set(counter)
                    self.f.br(done)
            elif call_lanes(self.f, s.body, vector, dtypes, counter, end):
                self.f.emit(counter, end, "i32.ge_s").br_if(done)
            yield

    @contextmanager
    def _hoisted(self, s: For, vector: Vector) -> Iterator[None]:
        """Splat loop invariants before the loop."""
        made: dict[Any, int] = {}
        for key, e in invariants(s.body, vector.lanes).items():
            vector.splat(e)
            made[key] = self.f.local("v128")
            self.f.set(made[key])
        vector.invariants = made
        yield
        vector.invariants = {}
        self.f.release(*made.values())

    def _banks(self, sums: dict[int, tuple[str, DType]], count: int) -> list[dict[int, int]]:
        """Return sets of accumulators, initialised with neutral elements."""
        f = self.f
        banks = [{var: f.local("v128") for var in sums} for _ in range(count)]
        for bank in banks:
            for var, (op, dtype) in sums.items():
                _neutral(f, op, dtype)
                f.set(bank[var])
        return banks

    def _rounds(self, s: For, vector: Vector, banks: list[dict[int, int]], counter: int, end: int) -> None:
        """Emit the loop, unrolled by the number of banks, with four lanes for each bank."""
        f, inner = self.f, vector.locals
        with f.scratch("i32", 1) as (stop,):
            f.emit(end).i32(-LANES).emit("i32.and").set(stop)
            if len(banks) > 1:
                f.add(stop, -LANES * (len(banks) - 1))
            with f.until(counter, stop, LANES):
                for n, bank in enumerate(banks):
                    vector.locals = {**bank, **inner}
                    self._lane_block(s.body, vector)
                    if n < len(banks) - 1:
                        f.add(counter, LANES)
        vector.locals = inner

    def _lane_block(self, body: list[Stmt], vector: Vector) -> None:
        for s in body:
            self._lane_statement(s, vector)

    def _lane_statement(self, s: Stmt, vector: Vector) -> None:
        f = self.f
        if isinstance(s, (Let, Set)) and s.var not in vector.locals:
            self.scalar.root(s.value)
            f.set(self.variable(s.var, s.value.dtype))
        elif isinstance(s, (Let, Set)):
            vector.root(s.value)
            f.set(vector.locals[s.var])
        elif isinstance(s, Accum) and self.relaxed and _is_product(s):
            for x in s.value.args:
                vector.root(x)
            f.emit(vector.locals[s.var], "f32x4.relaxed_madd").set(vector.locals[s.var])
        elif isinstance(s, Accum):
            f.emit(vector.locals[s.var])
            vector.root(s.value)
            self._combine(s.op, s.value.dtype)
            f.set(vector.locals[s.var])
        elif isinstance(s, Store):
            dtype = self.code.buffers[s.target][0]
            more = vector.address(s.target, s.coords[0], dtype)
            if more and dtype not in NATURAL:
                f.i32(more).emit("i32.add")
            vector.stored(s.value)
            store(f, dtype, more if dtype in NATURAL else 0)
        elif isinstance(s, For):
            with self._bounds(s) as bounds, self._pointers_of(s, vector) as steps, f.until(*bounds):
                self._lane_block(s.body, vector)
                for pointer, step in steps:
                    f.emit(pointer, step, "i32.add").set(pointer)

    @contextmanager
    def _pointers_of(self, s: For, vector: Vector) -> Iterator[list[tuple[int, int]]]:
        """Yield pointers and steps for the loads and stores of an inner loop whose address grows by a fixed step: one
        addition per iteration replaces a product and sums. Offsets that differ by a constant share a pointer. The
        loop's counter is 0 on entry."""
        f, outer = self.f, vector.pointers
        inside = assigned(s.body)
        steps: dict[Any, int] = {}
        pairs: list[tuple[int, int]] = []
        vector.pointers = dict(outer)
        loads = [x for x in nodes(s.body) if x.op == "load"]
        loads = [x for x in loads if not vector.lanes.depends(x) or vector.lanes.step(x)]
        used = [(x.value, x.args[0]) for x in loads]
        used += [(x.target, x.coords[0]) for x in statements(s.body) if isinstance(x, Store)]
        for buffer, whole in used:
            offset, dtype = without_constant(whole)[0], self.code.buffers[buffer][0]
            rate = None if _changes(offset, inside) else growth(offset, s.var)
            key = (buffer, offset.key())
            if rate is None or rate.key() == ZERO.key() or key in vector.pointers:
                continue
            vector.address(buffer, offset, dtype)
            vector.pointers[key] = f.local("i32")
            f.set(vector.pointers[key])
            size = (dtype.size, rate.key())
            if size not in steps:
                steps[size] = f.local("i32")
                self.scalar.root(rate)
                f.i32(dtype.size).emit("i32.mul").set(steps[size])
            pairs.append((vector.pointers[key], steps[size]))
        yield pairs
        f.release(*[pointer for pointer, _ in pairs], *steps.values())
        vector.pointers = outer

    def _combine(self, op: str, dtype: DType) -> None:
        """(sum, value) -> the new sum."""
        f = self.f
        if dtype is BOOL:
            f.emit("v128.or" if op == "any" else "v128.and")
        elif dtype is not F32:
            f.emit(f"i32x4.{COMBINE[op]}" + ("_s" if op in ("max", "min") else ""))
        elif op not in ("max", "min"):
            f.emit(f"f32x4.{COMBINE[op]}")
        else:  # x.pmax(y) is x < y ? y : x, with the value as x: a NaN of either is the result. Which of two zeros is
            # the result depends on their order, as in onnxruntime; otherwise max would take two more instructions
            with f.scratch("v128", 2) as (x, y):
                f.set(x).tee(y).emit(x, y, f"f32x4.p{op}", y, y, "f32x4.ne")
                f.emit("i32x4.relaxed_laneselect" if self.relaxed else "v128.bitselect")

    def _totals(self, sums: dict[int, tuple[str, DType]], lanes: dict[int, int]) -> None:
        """Combine the lanes of accumulators into their scalar variables, four sums of floats at a time."""
        floats = [var for var, (op, dtype) in sums.items() if op == "sum" and dtype is F32]
        fours = [floats[n : n + LANES] for n in range(0, len(floats) - LANES + 1, LANES)]
        for four in fours:
            self._add_across(four, [lanes[var] for var in four])
        for var, (op, dtype) in sums.items():
            if not any(var in four for four in fours):
                self._across(var, lanes[var], op, dtype)

    def _add_across(self, four: list[int], lanes: list[int]) -> None:
        """Add the lanes of four accumulators to their scalar variables: two additions of pairs, then one of these."""
        f = self.f
        with f.scratch("v128", 2) as pairs:
            for pair, x, y in zip(pairs, lanes[::2], lanes[1::2], strict=True):
                f.emit(x, y).shuffle32(0, 4, 1, 5).emit(x, y).shuffle32(2, 6, 3, 7).emit("f32x4.add").set(pair)
            f.emit(*pairs).shuffle32(0, 1, 4, 5).emit(*pairs).shuffle32(2, 3, 6, 7).emit("f32x4.add").set(pairs[0])
            for n, var in enumerate(four):
                v = self.variables[var]
                f.emit(v, pairs[0]).lane("f32x4.extract_lane", n).emit("f32.add").set(v)

    def _across(self, var: int, lanes: int, op: str, dtype: DType) -> None:
        """Combine the lanes of an accumulator into its scalar variable."""
        f, scalar = self.f, self.variables[var]
        if dtype is BOOL:
            f.emit(scalar, lanes, "v128.any_true" if op == "any" else "i32x4.all_true")
            f.emit("i32.or" if op == "any" else "i32.and").set(scalar)
            return
        part = self.f.local(kind(dtype))
        scratch = Expr("var", (), dtype, -1)
        self.variables[-1] = part
        for n in range(LANES):
            f.emit(lanes).lane("f32x4.extract_lane" if dtype is F32 else "i32x4.extract_lane", n).set(part)
            self.scalar.root(binary(COMBINE[op], Expr("var", (), dtype, var), scratch))
            f.set(scalar)
        f.release(part)


def _changes(offset: Expr, variables: set[int]) -> bool:
    return any(x.op == "load" or (x.op == "var" and x.value in variables) for x in walk(offset))


def _is_product(s: Accum) -> bool:
    """Whether the reduction sums products of loads, variables or constants: a fused multiply-add rounds once, not
    twice."""
    e = s.value
    return s.op == "sum" and e.op == "mul" and e.dtype is F32 and all(x.op in ("load", "var", "const") for x in e.args)


class _Plan:
    """Whether a vector loop fits four lanes, its variables that differ by lane, and its accumulators."""

    def __init__(self, loop: For, code: LoopCode) -> None:
        self.code = code
        self.sums: dict[int, tuple[str, DType]] = {}
        self.declared: set[int] = set()
        self.lanes = Lanes(loop.var, set())
        self.ok = all([self._fits(s) for s in loop.body])

    def _fits(self, s: Stmt) -> bool:
        lanes = self.lanes
        if isinstance(s, Let):
            self.declared.add(s.var)
            if s.mutable or lanes.depends(s.value):
                lanes.varying.add(s.var)
            return has_lanes(s.value.dtype) and lanes.fits(s.value) if s.var in lanes.varying else True
        if isinstance(s, Set):
            return s.var in lanes.varying and lanes.fits(s.value)
        if isinstance(s, Accum):
            if s.var not in self.declared:
                self.sums[s.var] = (s.op, s.value.dtype)
            extreme = s.op in ("max", "min") and is_narrow(s.value.dtype)
            return (extreme or s.value.dtype in (F32, I32, BOOL)) and lanes.fits(s.value)
        if isinstance(s, Store):
            dtype = self.code.buffers[s.target][0]
            unit = slope(s.coords[0], lanes.var) == 1
            return unit and has_lanes(dtype) and lanes.fits(s.value) and s.value.dtype is dtype
        if isinstance(s, For):
            for b in s.body:  # a scalar is splat once, at its Let
                if isinstance(b, Let) and b.value.op == "load" and b.value.dtype is F32:
                    lanes.varying.add(b.var)
            return not lanes.depends(s.extent) and all([self._fits(b) for b in s.body])
        return False


def _neutral(f: Function, op: str, dtype: DType) -> None:
    value = NEUTRAL[op](dtype)
    if dtype is F32:
        f.f32x4(value)
    else:
        f.i32x4(-int(value) if dtype is BOOL else int(value))
