"""Attention by blocks of keys: a workgroup computes some rows of the result, without a matrix of scores in memory.

For each block of keys an invocation computes the scores of its own keys, and reads each key once for all rows, so that
the query heads that share keys share their loads. The exponentials lie in workgroup memory; then an invocation adds up
its own elements of the values. Sums, and the largest score so far, are float32 (online softmax,
https://arxiv.org/abs/1805.02867).

On GPUs, if a run has few rows, workgroups also share the keys of a row: each handles a part, and a second kernel joins
the parts (`Parts`).
"""

from __future__ import annotations

import math
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
from .attention_chain import SCORE, Chain
from .attention_statements import LOWEST, Statements, below, element, finite, larger
from .vec4_access import WIDTH, aligned, lane, load4_of

MOST_ROWS = 8
# On the CPU, reads of workgroup memory take as long as those of caches. With at most FEW_ROWS rows, an invocation
# therefore uses them for twice as many keys, and twice as many values if these have at least WIDE elements: fewer
# would leave too many sums to join. Milliseconds of processor time on llvmpipe, before -> after (2026-11-27): 2 caches
# of 8192 keys of 32, 4 rows: 7.1 -> 6.5; of 64: 12.8 -> 8.6; 4 caches of 512 keys of 64, 128 rows: 48 -> 40
FEW_ROWS = 4
WIDE = 64
KEYS = 4  # of an invocation at once: each element of a query is loaded once for them
SHARED = 16384  # bytes of workgroup memory that every adapter has, so that an exported Program needs no more
_QUERIES, _WEIGHTS, _SHARES, _FEW, _ROWS = _ARRAYS = ("queries", "weights", "shares", "few", "rows")
_JOINED = GROUP // MOST_ROWS  # values of a row that one invocation joins


class Form(NamedTuple):
    """block: keys of a block, if workgroup memory suffices; fills: workgroups that fill a GPU: runs with fewer divide
    the keys; always: whether runs of many rows are one kernel, too. The numbers were not measured on a GPU yet"""

    block: int = 512
    fills: int = 512
    always: bool = True


# What `tune` tries. The last one is tried together with the tile of contractions that is usual on GPUs.
FORMS = {1: Form(fills=128), 2: Form(fills=2048), 3: Form(block=256), 4: Form(always=False)}


def form(adapter: Adapter) -> Form:
    return FORMS[adapter.attention] if adapter.attention else Form(always=not adapter.software)


class Sizes(NamedTuple):
    """rows: rows of a workgroup; block: keys of a block; part: keys of a workgroup; keys: those whose scores an
    invocation computes at once; vectors: of neighbouring values, whose sums an invocation has"""

    rows: int
    block: int
    part: AnyDim
    keys: int
    vectors: int


def sizes(chain: Chain, adapter: Adapter) -> Sizes | None:
    """The sizes that fit in workgroup memory; None if no block fits."""
    extent = chain.scores.out.shape[-2]
    known, factor, own = isinstance(extent, int), _factor(extent), form(adapter)
    rows = next((n for n in range(MOST_ROWS, 1, -1) if factor % n == 0), min(4, factor) if known else 4)
    rest = min(adapter.shared_bytes, SHARED) // 4 - rows * (chain.size + GROUP) - GROUP
    fits = min(own.block, rest // rows)
    if fits < GROUP * KEYS:
        return None
    doubles = adapter.software and rows <= FEW_ROWS
    keys = 2 * KEYS if doubles and fits >= GROUP * 2 * KEYS else KEYS
    vectors = 2 if doubles and chain.width >= WIDE else 1
    block = fits // (GROUP * keys) * GROUP * keys
    tiles = sh.size(chain.scores.out.shape[:-2]) * sh.ceildiv(extent, rows)
    whole = sh.compare("ge", tiles, own.fills)
    part = chain.length if adapter.software else sh.select(whole, chain.length, block)
    return Sizes(rows, block, part, keys, vectors)


def attention(chain: Chain, adapter: Adapter, parts: Tensor | None = None) -> tuple[Lowered, list[Array]]:
    """The loop form, and its arrays. parts: where it stores sums of parts of the keys; None: it handles all keys, and
    stores results"""
    s = sizes(chain, adapter)
    assert s is not None
    arrays = [(_QUERIES, s.rows * chain.size), (_WEIGHTS, s.rows * s.block), (_SHARES, s.rows * GROUP), (_FEW, GROUP)]
    writer = _Blocks(chain, s, adapter.f16, adapter.software, parts)
    lowered = writer.lowered()
    own = Array(_ROWS, F32, s.rows * (len(writer.sums) + 2), "private")
    return lowered, [*[Array(name, F32, count) for name, count in arrays], own]


class _Blocks(Statements):
    def __init__(self, chain: Chain, s: Sizes, f16: bool, by_ranges: bool, parts: Tensor | None) -> None:
        super().__init__(chain, chain.last.out if parts is None else parts, chain.read_first if parts else chain.read)
        self.sizes, self.parts, self.by_ranges = s, parts, by_ranges
        self.vec4_keys = _is_vec4(chain.keys, chain.scores, chain.scores.out.rank, f16)
        self.vec4_values = chain.wide is not None and _is_vec4(chain.values, chain.last, chain.wide, f16)
        self.lane = self.work.new()
        self.rows = range(s.rows)
        self.printed = self.rows  # those for which statements are written

    def lowered(self) -> Lowered:
        chain, s, number = self.chain, self.sizes, self.work.number
        *outer, extent, length = chain.scores.out.shape
        tiles, parts = sh.ceildiv(extent, s.rows), sh.ceildiv(length, s.part)
        self.add(Let(self.lane.value, Expr("invocation", (), I32)))
        unit = self.unit
        self.part = self.let(binary("rem", unit, number(parts)))
        unit = self.let(binary("div", unit, number(parts)))
        self.begin = self.let(self.part * number(s.part))
        self.end = self.let(minimum(self.begin + number(s.part), number(length)))
        self._place(self.let(binary("rem", unit, number(tiles))), self.let(binary("div", unit, number(tiles))), outer)
        self._load_queries()
        self._start()
        blocks = self.let(binary("div", self.end - self.begin + (s.block - 1), number(s.block)))
        self.loop(blocks, lambda turn: self._block(self.let(self.begin + turn * s.block)))
        self._finish()
        return self.code(sh.size(outer) * tiles * parts, _ARRAYS)

    def _variables(self, value: Expr) -> list[Expr]:
        """A variable for each row."""
        return [self.variable(value) for _ in self.rows]

    def _barrier(self) -> None:
        self.add(Let(self.work.new().value, Expr("barrier", (), I32)))

    def _for_rows(self, write: Callable[[], None]) -> None:
        """Write statements for all rows of a workgroup, or for one, if a run has no more, as for a token."""
        if self.whole:
            write()
            return

        def one() -> None:
            self.printed = range(1)
            write()
            self.printed = self.rows

        alone, several = self.inside(one), self.inside(write)
        self.add(When(below(self.count, const(2, I32)), alone, several))

    def _place(self, tile: Expr, group: Expr, outer: Sequence[AnyDim]) -> None:
        """The numbers of the rows of this workgroup: rows past the end repeat the last one."""
        extent = self.chain.scores.out.shape[-2]
        rows = self.sizes.rows
        self.decode(group, outer)
        last = self.work.number(extent) - 1
        first = self.let(tile * rows)
        self.whole = sh.ceildiv(extent, rows) * rows == extent
        self.count = self.let(self.work.number(extent) - first)
        self.row = [self.let(minimum(first + r, last)) for r in self.rows]
        self.number = [self.let(group * self.work.number(extent) + r) for r in self.row]

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
                self._at_row(self.let(minimum(self.row[0] + binary("div", at, size), last)))
                self.of_scores.index_of[rank] = [self.let(binary("rem", at, size))]
                self.add(Store(_QUERIES, (at,), cast(self.of_scores.load(self.chain.queries), F32)))

            self.when(below(at, const(count, I32)), store)

        self.loop(const(-(-count // GROUP), I32), load)

    def _start(self) -> None:
        """Variables that change from block to block, and what the second product of an invocation adds up."""
        width = self.chain.width
        self.together = WIDTH if width % WIDTH == 0 else 1  # neighbouring elements of an invocation
        # invocations that differ in their elements of the values
        self.across = min(-(-width // (self.together * self.sizes.vectors)), GROUP)
        self.groups = GROUP // self.across  # of invocations that differ in their keys
        turns = -(-width // (self.across * self.together))
        self.largest, self.totals = self._variables(LOWEST), self._variables(const(0.0))
        self.sums = [self._variables(const(0.0)) for _ in range(turns * self.together)]
        across = const(self.across, I32)
        self.own, self.group = (self.let(binary(op, self.lane, across)) for op in ("rem", "div"))
        last = const(width - self.together, I32)
        self.elements = [self.let(minimum((self.own + n * self.across) * self.together, last)) for n in range(turns)]

    # ── a block ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _block(self, first: Expr) -> None:
        self._barrier()
        here = self._variables(LOWEST)
        count = self.let(minimum(self.end - first, const(self.sizes.block, I32)))
        turns, some = (self._turns(count, n) for n in (GROUP, self.sizes.keys * GROUP))
        self._for_rows(lambda: self.loop(some, lambda turn: self._scores(first, turn, here)))
        best = self._joined(here, larger)
        safe = []
        for r in self.rows:
            new = self.let(larger(self.largest[r], best[r]))
            safe.append(self.let(finite(new)))
            scale = self.let(exp(self.largest[r] - safe[r]))
            self.change(self.largest[r], new)
            for v in (self.totals[r], *[sums[r] for sums in self.sums]):
                self.change(v, v * scale)
        self._for_rows(lambda: self.loop(turns, lambda turn: self._exponentials(turn, safe)))
        self._barrier()
        keys = self._turns(count, self.groups)
        # A GPU reads what neighbouring invocations read at once; the CPU is faster at reading ranges one after the
        # other: 8192 keys of 32 took 8.9 and 7.1 ms
        begin = self.let(self.group * keys) if self.by_ranges else None
        self._for_rows(lambda: self.loop(keys, lambda turn: self._weighted(turn, begin, first, count)))

    def _turns(self, count: Expr, each: int) -> Expr:
        return self.let(binary("div", count + (each - 1), const(each, I32)))

    def _scores(self, first: Expr, turn: Expr, here: list[Expr]) -> None:
        """The logits of some keys of an invocation."""
        each = range(self.sizes.keys)
        place = self.let(turn * (len(each) * GROUP) + self.lane)
        rank, size = self.chain.scores.out.rank, self.chain.size
        last = self.end - 1
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
            self._at_row(self.row[r])
            for k, key in enumerate(keys):
                at = self.let(place + k * GROUP)
                self.of_scores.index_of[rank - 1] = [key]
                logit = self.let(select(below(first + at, self.end), self._logit(r, key, products[k][r]), LOWEST))
                self.add(Store(_WEIGHTS, (at + r * self.sizes.block,), logit))
                self.change(here[r], larger(here[r], logit))

    def _logit(self, r: int, key: Expr, score: Expr) -> Expr:
        epilogue, softmax = self.chain.scores.epilogue, self.chain.softmax
        if epilogue is not None:
            dtype = self.chain.scores.expr.dtype
            held = rewrite(epilogue, lambda e: cast(score, dtype) if e.op == "arg" else None)
            score = self.let(cast(self.of_scores.load(held), F32))
        return self.of_softmax(softmax.logit, self.number[r], {softmax.place: key, SCORE: score})

    def _exponentials(self, turn: Expr, safe: Sequence[Expr]) -> None:
        at = self.let(turn * GROUP + self.lane)
        for r in self.printed:
            place = self.let(at + r * self.sizes.block)
            weight = self.let(exp(element(_WEIGHTS, place) - safe[r]))
            self.add(Store(_WEIGHTS, (place,), weight))
            self.change(self.totals[r], self.totals[r] + weight)

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
        chain = self.chain
        at = self.let(turn * self.groups + self.group if begin is None else begin + turn)
        self.of_result.index_of[chain.last.out.rank] = [self.let(minimum(first + at, self.end - 1))]
        axis = -1 if chain.wide is None else chain.wide
        values = []
        for place in self.elements:
            values += self._neighbours(self.of_result, chain.values, axis, self.vec4_values, place, self.together)
        if self.groups > 1:
            values = [self.let(select(below(at, count), v, 0.0)) for v in values]
            at = self.let(minimum(at, count - 1))
        for r in self.printed:
            weight = self.let(element(_WEIGHTS, at + r * self.sizes.block))
            for sums, value in zip(self.sums, values, strict=True):
                self.change(sums[r], sums[r] + weight * value)

    # ── results ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _joined(self, own: Sequence[Expr], op: Callable[[Expr, Expr], Expr]) -> list[Expr]:
        """For each row, the maximum or sum of a variable over all invocations. In loops, because SwiftShader compiles
        long kernels with barriers in minutes."""
        self._barrier()
        for r in self.rows:
            self.add(Store(_SHARES, (self.lane + r * GROUP,), own[r]))
        for source, target, count in ((_SHARES, _FEW, GROUP // _JOINED), (_FEW, _SHARES, 1)):
            self._barrier()
            self.when(below(self.lane, const(len(self.rows) * count, I32)), lambda: self._join(source, target, op))  # noqa: B023
        self._barrier()
        return [self.let(element(_SHARES, const(r, I32))) for r in self.rows]

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
        totals = self._joined(self.totals, lambda a, b: a + b)
        each = len(self.sums)
        for r in self.rows:
            for n, v in enumerate([self.largest[r], totals[r], *[sums[r] for sums in self.sums]]):
                self.add(Store(_ROWS, (const(r * (each + 2) + n, I32),), v))
        if self.groups > 1:
            self.loop(const(len(self.rows), I32), lambda r: self._sum_groups(self.let(r * (each + 2) + 2)))
        own = below(self.lane, const(self.across, I32))
        self.when(own, lambda: self.loop(minimum(self.count, const(len(self.rows), I32)), self._store_row))

    def _sum_groups(self, first: Expr) -> None:
        """The first group adds the sums of the others, of one row."""
        groups, own = const(self.groups - 1, I32), below(self.lane, const(self.across, I32))

        def add(at: Expr) -> None:
            found = self.variable(element(_SHARES, self.own))
            self.loop(groups, lambda g: self.change(found, found + element(_SHARES, self.own + (g + 1) * self.across)))
            self.add(Store(_ROWS, (at,), found))

        def one(n: Expr) -> None:
            at = self.let(first + n)
            self._barrier()
            self.add(Store(_SHARES, (self.lane,), element(_ROWS, at)))
            self._barrier()
            self.when(own, lambda: add(at))

        self.loop(const(len(self.sums), I32), one)

    def _store_row(self, r: Expr) -> None:
        """Store a row's results. Invocations past the last element have the last ones."""
        chain, each = self.chain, len(self.sums)
        first = self.let(r * (each + 2))
        largest, total = (self.let(element(_ROWS, first + n)) for n in range(2))
        row = self.let(self.row[0] + r)
        number = self.let(self.number[0] + r)
        self._at_row(row)
        last = const(chain.width - self.together, I32)

        def place(n: Expr) -> Expr:
            turn, within = (binary(op, n, const(self.together, I32)) for op in ("div", "rem"))
            return self.let(minimum((self.own + turn * self.across) * self.together, last) + within)

        if self.parts is None:
            self.store(number, largest, total, const(each, I32), lambda n: (place(n), element(_ROWS, first + (n + 2))))
            return
        self.loop(const(each, I32), lambda n: self._store_part(number, place(n), element(_ROWS, first + (n + 2))))
        for n, value in enumerate((largest, total)):
            self._store_part(number, const(chain.width + n, I32), value)

    def _store_part(self, number: Expr, place: Expr, value: Expr) -> None:
        assert self.parts is not None
        self.add(Store(0, (self.work.address(self.parts, [number, self.part, place]),), value))


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


def joining(chain: Chain, parts: Tensor) -> Lowered:
    return _Joining(chain, parts).lowered()


def parts_of(chain: Chain, adapter: Adapter) -> Tensor | None:
    """Memory for the sums of parts of the keys; None if each workgroup handles all keys."""
    s = sizes(chain, adapter)
    if s is None or s.part == chain.length:
        return None
    shape = chain.scores.out.shape
    return Leaf("scratch").making((sh.size(shape[:-1]), sh.ceildiv(shape[-1], s.part), chain.width + 2), F32).out


def _is_vec4(factor: Expr, kernel: Reduce, axis: int, f16: bool) -> bool:
    """Whether a factor of a product can be loaded by vec4 along an axis."""
    at = factor.args[0] if factor.op == "cast" else factor
    if at.op != "at" or not at.dtype.is_float:
        return False
    return aligned(at, [Group(d, n) for n, d in enumerate((*kernel.out.shape, *kernel.extents))], axis, f16)


def joined(chain: Chain, adapter: Adapter) -> AnyDim:
    """1 if attention runs as one kernel, 0 if its products and its softmax run apart; else a dim that is 1 or 0 in a
    run. On software adapters one kernel computes the tokens of decoders, where it saves dispatches. For more rows,
    register tiles are faster there.

    Milliseconds of the three kernels -> of this, best of 7 (SwiftShader, 8 heads of 64) and median processor time
    (llvmpipe, 4 heads of 64; 2026-11-27, a busy machine), as many rows as keys: SwiftShader, 64 rows: 7.3 -> 134, 256
    rows: 103 -> 1079; llvmpipe, 16 rows: 2.4 -> 8.1, 64: 3.2 -> 17, 256: 17 -> 74, 1024: 240 -> 632. Tokens of
    llama_mini behind 8192 positions take llvmpipe as long both ways."""
    rows, keys = chain.scores.out.shape[-2:]
    length, few = sh.estimate(chain.length), len(chain.read) + 2 <= adapter.storage_buffers  # the result, fault record
    ends = not adapter.iterations or 2 * length <= adapter.iterations
    if not (few and ends and sizes(chain, adapter)):
        return 0
    if form(adapter).always:
        return 1
    token = _factor(rows)
    decodes = sh.symbols(rows) and sh.symbols(keys - rows) and token <= FEW_ROWS
    return sh.compare("le", rows, token) if decodes else 0


def _factor(extent: AnyDim) -> int:
    """The largest known factor: for a dim of a decoder, the heads that share keys."""
    return extent if isinstance(extent, int) else math.gcd(*[c for _, c in extent.terms])
