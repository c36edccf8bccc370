"""Writes the kernels of attention by blocks of keys (attention.py): a workgroup computes some rows, block by block; if
workgroups share the keys of a row, a second kernel joins the parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyruntime.codegen.addressing import Indexing
from pyruntime.codegen.loop_ir import Lowered
from pyruntime.codegen.schedule import Group
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, binary, cast, const, exp, minimum, rewrite, select
from pyruntime.ir.kernel import Leaf, Let, Reduce, Store, Tensor, When
from pyruntime.ir.shape import AnyDim

from ..adapter import Adapter
from ..printer.loops import GROUP, Array
from .attention import MOST_ROWS, Joint, Sizes
from .attention_chain import SCORE, Chain
from .attention_statements import LOWEST, Statements, below, element, finite, larger
from .vec4_access import WIDTH, aligned, lane, load4_of

_QUERIES, _WEIGHTS, _SHARES, _FEW, _ROWS = _ARRAYS = ("queries", "weights", "shares", "few", "rows")
_JOINED = GROUP // MOST_ROWS  # values of a row that one invocation joins


def parts_of(joint: Joint) -> Tensor | None:
    """Memory for the sums of parts of the keys; None if each workgroup handles all keys."""
    chain, part = joint.chain, joint.sizes.part
    if part == chain.length:
        return None
    shape = chain.scores.out.shape
    return Leaf("scratch").making((sh.size(shape[:-1]), sh.ceildiv(shape[-1], part), chain.width + 2), F32).out


def blocks(joint: Joint, adapter: Adapter, parts: Tensor | None = None) -> tuple[Lowered, list[Array]]:
    """The loop form, and its arrays. parts: where it stores sums of parts of the keys; None: it handles all keys, and
    stores results"""
    chain, s = joint.chain, joint.sizes
    arrays = [(_QUERIES, s.rows * chain.size), (_WEIGHTS, s.rows * s.block), (_SHARES, s.rows * GROUP), (_FEW, GROUP)]
    writer = _Blocks(chain, s, adapter, parts)
    own = Array(_ROWS, F32, s.rows * (writer.division.sums + 2), "private")
    return writer.lowered(), [*[Array(name, F32, count) for name, count in arrays], own]


def joining(chain: Chain, parts: Tensor) -> Lowered:
    """The loop form of the kernel that joins the parts."""
    return _Joining(chain, parts).lowered()


class _Division(NamedTuple):
    """How the invocations of a workgroup divide the values of a row. together: neighbouring values of an invocation;
    across: invocations that differ in their values; groups: of invocations, which differ in their keys; turns: of an
    invocation"""

    together: int
    across: int
    groups: int
    turns: int

    @staticmethod
    def of(width: int, vectors: int) -> _Division:
        """width: values of a row; vectors: see Sizes"""
        together = WIDTH if width % WIDTH == 0 else 1
        across = min(-(-width // (together * vectors)), GROUP)
        return _Division(together, across, GROUP // across, -(-width // (across * together)))

    @property
    def sums(self) -> int:
        """The sums of an invocation for each row."""
        return self.turns * self.together


class _Keys(NamedTuple):
    """part: the number of a workgroup's part of the keys, which are those from `begin` to `end`"""

    part: Expr
    begin: Expr
    end: Expr


class _Rows(NamedTuple):
    """The rows of a workgroup. place, number: of each along its axis, and among all rows; past the end those of the
    last row; left: rows from the first one to the end; are_whole: whether no workgroup has rows past the end"""

    place: list[Expr]
    number: list[Expr]
    left: Expr
    are_whole: bool


class _Sums(NamedTuple):
    """Variables that change from block to block: for each row its largest logit and the total of its exponentials, and
    for each value of an invocation the sum for each row."""

    largest: list[Expr]
    totals: list[Expr]
    values: list[list[Expr]]


class _Share(NamedTuple):
    """The part of an invocation. own: its number among those of a group; group: the number of its group; values: the
    first of neighbouring values, for each turn"""

    own: Expr
    group: Expr
    values: list[Expr]


class _Blocks(Statements):
    """The kernel of blocks. printed: numbers of the rows for which statements are written"""

    keys: _Keys
    rows: _Rows
    sums: _Sums
    share: _Share

    def __init__(self, chain: Chain, s: Sizes, adapter: Adapter, parts: Tensor | None) -> None:
        super().__init__(chain, chain.last.out if parts is None else parts, chain.read_first if parts else chain.read)
        self.sizes, self.parts, self.by_ranges = s, parts, adapter.software
        self.vec4_keys = _is_vec4(chain.keys, chain.scores, chain.scores.out.rank, adapter.f16)
        self.vec4_values = chain.wide is not None and _is_vec4(chain.values, chain.last, chain.wide, adapter.f16)
        self.division = _Division.of(chain.width, s.vectors)
        self.lane = self.work.new()
        self.all = self.printed = range(s.rows)

    def lowered(self) -> Lowered:
        chain, s, number = self.chain, self.sizes, self.work.number
        *outer, extent, length = chain.scores.out.shape
        tiles, parts = sh.ceildiv(extent, s.rows), sh.ceildiv(length, s.part)
        self.add(Let(self.lane.value, Expr("invocation", (), I32)))
        unit = self.unit
        part = self.let(binary("rem", unit, number(parts)))
        unit = self.let(binary("div", unit, number(parts)))
        begin = self.let(part * number(s.part))
        end = self.let(minimum(begin + number(s.part), number(length)))
        self.keys = _Keys(part, begin, end)
        tile, group = (self.let(binary(op, unit, number(tiles))) for op in ("rem", "div"))
        self.rows = self._place(tile, group, outer)
        self._load_queries()
        self.sums, self.share = self._start()
        count = self.let(binary("div", end - begin + (s.block - 1), number(s.block)))
        self.loop(count, lambda turn: self._block(self.let(begin + turn * s.block)))
        self._finish()
        return self.code(sh.size(outer) * tiles * parts, _ARRAYS)

    def _variables(self, value: Expr) -> list[Expr]:
        """A variable for each row."""
        return [self.variable(value) for _ in self.all]

    def _barrier(self) -> None:
        self.add(Let(self.work.new().value, Expr("barrier", (), I32)))

    def _for_rows(self, write: Callable[[], None]) -> None:
        """Write statements for all rows of a workgroup, or for one, if a run has no more, as for a token."""
        if self.rows.are_whole:
            write()
            return

        def one() -> None:
            self.printed = range(1)
            write()
            self.printed = self.all

        alone, several = self.inside(one), self.inside(write)
        self.add(When(below(self.rows.left, const(2, I32)), alone, several))

    def _place(self, tile: Expr, group: Expr, outer: Sequence[AnyDim]) -> _Rows:
        extent = self.chain.scores.out.shape[-2]
        rows = self.sizes.rows
        self.decode(group, outer)
        last = self.work.number(extent) - 1
        first = self.let(tile * rows)
        left = self.let(self.work.number(extent) - first)
        place = [self.let(minimum(first + r, last)) for r in self.all]
        number = [self.let(group * self.work.number(extent) + r) for r in place]
        return _Rows(place, number, left, sh.ceildiv(extent, rows) * rows == extent)

    def _at_row(self, place: Expr) -> None:
        self.at_axis(len(self.chain.axes) - 1, place)

    def _load_queries(self) -> None:
        """The queries of all rows to workgroup memory."""
        size, rank = const(self.chain.size, I32), self.chain.scores.out.rank
        count = self.sizes.rows * self.chain.size
        last = self.work.number(self.chain.scores.out.shape[-2]) - 1

        def load(turn: Expr) -> None:
            at = self.let(turn * GROUP + self.lane)

            def store() -> None:
                self._at_row(self.let(minimum(self.rows.place[0] + binary("div", at, size), last)))
                self.of_scores.index_of[rank] = [self.let(binary("rem", at, size))]
                self.add(Store(_QUERIES, (at,), cast(self.of_scores.load(self.chain.queries), F32)))

            self.when(below(at, const(count, I32)), store)

        self.loop(const(-(-count // GROUP), I32), load)

    def _start(self) -> tuple[_Sums, _Share]:
        width, d = self.chain.width, self.division
        largest, totals = self._variables(LOWEST), self._variables(const(0.0))
        values = [self._variables(const(0.0)) for _ in range(d.sums)]
        own, group = (self.let(binary(op, self.lane, const(d.across, I32))) for op in ("rem", "div"))
        last = const(width - d.together, I32)
        first = [self.let(minimum((own + n * d.across) * d.together, last)) for n in range(d.turns)]
        return _Sums(largest, totals, values), _Share(own, group, first)

    # ── a block ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _block(self, first: Expr) -> None:
        sums = self.sums
        self._barrier()
        here = self._variables(LOWEST)
        count = self.let(minimum(self.keys.end - first, const(self.sizes.block, I32)))
        turns, some = (self._turns(count, n) for n in (GROUP, self.sizes.keys * GROUP))
        self._for_rows(lambda: self.loop(some, lambda turn: self._scores(first, turn, here)))
        best = self._joined(here, larger)
        safe = []
        for r in self.all:
            new = self.let(larger(sums.largest[r], best[r]))
            safe.append(self.let(finite(new)))
            scale = self.let(exp(sums.largest[r] - safe[r]))
            self.change(sums.largest[r], new)
            for v in (sums.totals[r], *[rows[r] for rows in sums.values]):
                self.change(v, v * scale)
        self._for_rows(lambda: self.loop(turns, lambda turn: self._exponentials(turn, safe)))
        self._barrier()
        keys = self._turns(count, self.division.groups)
        # A GPU reads what neighbouring invocations read at once; the CPU is faster at reading ranges one after the
        # other: 8192 keys of 32 took 8.9 and 7.1 ms
        begin = self.let(self.share.group * keys) if self.by_ranges else None
        self._for_rows(lambda: self.loop(keys, lambda turn: self._weighted(turn, begin, first, count)))

    def _turns(self, count: Expr, each: int) -> Expr:
        return self.let(binary("div", count + (each - 1), const(each, I32)))

    def _scores(self, first: Expr, turn: Expr, here: list[Expr]) -> None:
        """The logits of some keys of an invocation."""
        each = range(self.sizes.keys)
        place = self.let(turn * (len(each) * GROUP) + self.lane)
        rank, size = self.chain.scores.out.rank, self.chain.size
        last = self.keys.end - 1
        keys = [self.let(minimum(first + (place + k * GROUP), last)) for k in each]
        products = [self._variables(const(0.0)) for _ in keys]
        width = WIDTH if size % WIDTH == 0 else 1

        def step(d: Expr) -> None:
            at = self.let(d * width)
            loaded = []
            for key in keys:
                self.of_scores.index_of[rank - 1] = [key]
                loaded.append(self._neighbours(self.of_scores, self.chain.keys, rank, self.vec4_keys, at, width))
            for r in self.printed:
                for n in range(width):
                    q = self.let(element(_QUERIES, at + (r * size + n)))
                    for k in each:
                        self.change(products[k][r], products[k][r] + q * loaded[k][n])

        self.loop(const(size // width, I32), step)
        for r in self.printed:
            self._at_row(self.rows.place[r])
            for k, key in enumerate(keys):
                at = self.let(place + k * GROUP)
                self.of_scores.index_of[rank - 1] = [key]
                logit = self.let(select(below(first + at, self.keys.end), self._logit(r, key, products[k][r]), LOWEST))
                self.add(Store(_WEIGHTS, (at + r * self.sizes.block,), logit))
                self.change(here[r], larger(here[r], logit))

    def _logit(self, r: int, key: Expr, score: Expr) -> Expr:
        epilogue, softmax = self.chain.scores.epilogue, self.chain.softmax
        if epilogue is not None:
            dtype = self.chain.scores.expr.dtype
            held = rewrite(epilogue, lambda e: cast(score, dtype) if e.op == "arg" else None)
            score = self.let(cast(self.of_scores.load(held), F32))
        return self.of_softmax(softmax.logit, self.rows.number[r], {softmax.place: key, SCORE: score})

    def _exponentials(self, turn: Expr, safe: Sequence[Expr]) -> None:
        at = self.let(turn * GROUP + self.lane)
        for r in self.printed:
            place = self.let(at + r * self.sizes.block)
            weight = self.let(exp(element(_WEIGHTS, place) - safe[r]))
            self.add(Store(_WEIGHTS, (place,), weight))
            self.change(self.sums.totals[r], self.sums.totals[r] + weight)

    def _neighbours(self, of: Indexing, factor: Expr, axis: int, vec4: bool, first: Expr, count: int) -> list[Expr]:
        """The factor at neighbouring indices along an axis, as float32."""
        if vec4:
            of.index_of[axis] = [first]
            at = factor.args[0] if factor.op == "cast" else factor
            four = self.let(load4_of(of.load(at)))
            return [self.let(cast(lane(four, n), F32)) for n in range(count)]
        out = []
        for n in range(count):
            of.index_of[axis] = [first, const(n, I32)] if n else [first]
            out.append(self.let(cast(of.load(factor), F32)))
        return out

    def _weighted(self, turn: Expr, begin: Expr | None, first: Expr, count: Expr) -> None:
        """Add the values of one key for each group of invocations. begin: the first key of this invocation's group, if
        it has a range of keys"""
        chain, d = self.chain, self.division
        at = self.let(turn * d.groups + self.share.group if begin is None else begin + turn)
        self.of_result.index_of[chain.last.out.rank] = [self.let(minimum(first + at, self.keys.end - 1))]
        axis = -1 if chain.wide is None else chain.wide
        values = []
        for place in self.share.values:
            values += self._neighbours(self.of_result, chain.values, axis, self.vec4_values, place, d.together)
        if d.groups > 1:
            values = [self.let(select(below(at, count), v, 0.0)) for v in values]
            at = self.let(minimum(at, count - 1))
        for r in self.printed:
            weight = self.let(element(_WEIGHTS, at + r * self.sizes.block))
            for sums, value in zip(self.sums.values, values, strict=True):
                self.change(sums[r], sums[r] + weight * value)

    # ── results ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _joined(self, own: Sequence[Expr], op: Callable[[Expr, Expr], Expr]) -> list[Expr]:
        """For each row, the maximum or sum of a variable over all invocations. In loops, because SwiftShader compiles
        long kernels with barriers in minutes."""
        self._barrier()
        for r in self.all:
            self.add(Store(_SHARES, (self.lane + r * GROUP,), own[r]))
        for source, target, count in ((_SHARES, _FEW, GROUP // _JOINED), (_FEW, _SHARES, 1)):
            self._barrier()
            self.when(below(self.lane, const(len(self.all) * count, I32)), lambda: self._join(source, target, op))  # noqa: B023
        self._barrier()
        return [self.let(element(_SHARES, const(r, I32))) for r in self.all]

    def _join(self, source: str, target: str, op: Callable[[Expr, Expr], Expr]) -> None:
        """Invocation n joins the next values of a row."""
        found = self.variable(element(source, self.lane * _JOINED))
        self.loop(
            const(_JOINED - 1, I32),
            lambda n: self.change(found, op(found, element(source, self.lane * _JOINED + (n + 1)))),
        )
        self.add(Store(target, (self.lane,), found))

    def _finish(self) -> None:
        """Store the results. Loops over the rows keep the code short."""
        sums, each = self.sums, self.division.sums
        totals = self._joined(sums.totals, lambda a, b: a + b)
        for r in self.all:
            for n, v in enumerate([sums.largest[r], totals[r], *[rows[r] for rows in sums.values]]):
                self.add(Store(_ROWS, (const(r * (each + 2) + n, I32),), v))
        if self.division.groups > 1:
            self.loop(const(len(self.all), I32), lambda r: self._sum_groups(self.let(r * (each + 2) + 2)))
        own = below(self.lane, const(self.division.across, I32))
        self.when(own, lambda: self.loop(minimum(self.rows.left, const(len(self.all), I32)), self._store_row))

    def _sum_groups(self, first: Expr) -> None:
        """The first group adds the sums of the others, of one row."""
        across, mine = self.division.across, self.share.own
        groups, own = const(self.division.groups - 1, I32), below(self.lane, const(across, I32))

        def add(at: Expr) -> None:
            found = self.variable(element(_SHARES, mine))
            self.loop(groups, lambda g: self.change(found, found + element(_SHARES, mine + (g + 1) * across)))
            self.add(Store(_ROWS, (at,), found))

        def one(n: Expr) -> None:
            at = self.let(first + n)
            self._barrier()
            self.add(Store(_SHARES, (self.lane,), element(_ROWS, at)))
            self._barrier()
            self.when(own, lambda: add(at))

        self.loop(const(self.division.sums, I32), one)

    def _store_row(self, r: Expr) -> None:
        """Store a row's results. Invocations past the last element have the last ones."""
        chain, d = self.chain, self.division
        each = d.sums
        first = self.let(r * (each + 2))
        largest, total = (self.let(element(_ROWS, first + n)) for n in range(2))
        row = self.let(self.rows.place[0] + r)
        number = self.let(self.rows.number[0] + r)
        self._at_row(row)
        last = const(chain.width - d.together, I32)

        def place(n: Expr) -> Expr:
            turn, within = (binary(op, n, const(d.together, I32)) for op in ("div", "rem"))
            return self.let(minimum((self.share.own + turn * d.across) * d.together, last) + within)

        if self.parts is None:
            self.store(number, largest, total, const(each, I32), lambda n: (place(n), element(_ROWS, first + (n + 2))))
            return
        self.loop(const(each, I32), lambda n: self._store_part(number, place(n), element(_ROWS, first + (n + 2))))
        for n, value in enumerate((largest, total)):
            self._store_part(number, const(chain.width + n, I32), value)

    def _store_part(self, number: Expr, place: Expr, value: Expr) -> None:
        assert self.parts is not None
        self.add(Store(0, (self.work.address(self.parts, [number, self.keys.part, place]),), value))


class _Joining(Statements):
    """Joins the parts of a row. A work unit is an element of the result."""

    def __init__(self, chain: Chain, parts: Tensor) -> None:
        super().__init__(chain, chain.last.out, [parts, *chain.read_last])
        self.parts = parts

    def lowered(self) -> Lowered:
        width, shape = self.chain.width, self.chain.scores.out.shape[:-1]
        row = self.let(binary("div", self.unit, self.work.number(width)))
        place = self.let(binary("rem", self.unit, self.work.number(width)))
        self.decode(row, shape)
        largest, total, sums = self.variable(LOWEST), self.variable(const(0.0)), self.variable(const(0.0))
        count = self.work.number(self.parts.shape[1])

        def load(part: Expr, column: Expr) -> Expr:
            return self.let(self.work.expression(self.parts.at(row, part, column)))

        self.loop(count, lambda part: self.change(largest, larger(largest, load(part, const(width, I32)))))

        def add(part: Expr) -> None:
            scale = self.let(exp(load(part, const(width, I32)) - finite(largest)))
            self.change(total, total + load(part, const(width + 1, I32)) * scale)
            self.change(sums, sums + load(part, place) * scale)

        self.loop(count, add)
        self.store(row, largest, total, const(1, I32), lambda _: (place, sums))
        return self.code(sh.size(shape) * width)


def _is_vec4(factor: Expr, kernel: Reduce, axis: int, f16: bool) -> bool:
    """Whether a factor of a product can be loaded by vec4 along an axis."""
    at = factor.args[0] if factor.op == "cast" else factor
    if at.op != "at" or not at.dtype.is_float:
        return False
    return aligned(at, [Group(d, n) for n, d in enumerate((*kernel.out.shape, *kernel.extents))], axis, f16)
