"""The memory that kernels need one after the other, if some of their values are computed a second time.

A value is a buffer, numbered by the uid of the tensor that owns it: tensors that share memory are one value.
`copy_of(v)` is the number of the value that is v computed a second time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from pyruntime.ir.copies import can_copy
from pyruntime.ir.expr import walk
from pyruntime.ir.kernel import Alias, Call, Kernel, Leaf, Loops, Map, Reduce, Tensor, root
from pyruntime.ir.shape import Shape
from pyruntime.runtime.arena import ALIGN, GPU_ALIGN


def copy_of(v: int) -> int:
    return -v - 1


def elements(shape: Shape) -> int:
    """Symbols that only a run knows count as 1."""
    return prod([d if isinstance(d, int) else 1 for d in shape])


def bytes_of(t: Tensor, unit: int = ALIGN) -> int:
    return max(-(-elements(t.shape) * t.dtype.size // unit) * unit, unit)


@dataclass(slots=True)
class Op:
    """What a kernel does. reads: values; makes: values that begin with it; over: of `reads`, those whose memory the
    result may take; scratch: bytes that it needs besides; acts: whether it does more than make values"""

    kernel: Kernel
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    over: tuple[int, ...]
    scratch: int
    acts: bool

    @classmethod
    def of(cls, kernel: Kernel, most: int, on_gpu: bool) -> Op:
        """most: bytes of scratch that a routine's call may need; on_gpu: there, no result takes an operand's memory"""
        reads = tuple(dict.fromkeys([root(t).uid for t in kernel.inputs]))
        makes = tuple([t.uid for t in kernel.outputs if root(t) is t])
        scratch = sum(map(bytes_of, kernel.scratch)) if isinstance(kernel, Loops) else 0
        if isinstance(kernel, Call):
            scratch = most
        acts = len(makes) < len(kernel.outputs) or not makes
        return cls(kernel, reads, makes, () if on_gpu else tuple(_overwritten(kernel)), scratch, acts)

    @property
    def may_move(self) -> bool:
        """Whether it may run at another place, or twice."""
        return can_copy(self.kernel) and not self.acts

    @property
    def cost(self) -> float:
        """Of running it again, as the bytes that memory could move meanwhile."""
        kernel = self.kernel
        moved = sum(bytes_of(t) for t in (*kernel.inputs, *kernel.outputs))
        meaning = kernel.meaning if isinstance(kernel, Call) else kernel
        terms = elements(meaning.extents) if isinstance(meaning, Reduce) else 1
        return moved + elements(kernel.outputs[0].shape) * terms / 4


def _overwritten(kernel: Kernel) -> Iterable[int]:
    if isinstance(kernel, Map):
        found = [x.value for x in walk(kernel.expr) if x.op == "at" and _is_own_place(x.args, x.value.shape)]
    elif isinstance(kernel, Loops) and kernel.unit_is_row and not kernel.bases:
        found = list(kernel.args)
    else:
        return ()
    return dict.fromkeys([root(t).uid for t in found if bytes_of(t) == bytes_of(kernel.outputs[0])])


def _is_own_place(coords: Sequence[object], shape: Shape) -> bool:
    """Whether a map loads the element where it stores its result."""
    pairs = enumerate(zip(coords, shape, strict=True))
    return all(d == 1 or (x.op, x.value) == ("index", n) for n, (x, d) in pairs)  # type: ignore[attr-defined]


class Run(NamedTuple):
    """An op, with what it reads and makes in this order of ops."""

    op: int
    reads: Sequence[int]
    makes: Sequence[int]


@dataclass(slots=True)
class Peak:
    """bytes: most in use at once; at: the Run; born, last: by value, the first and the last Run that uses it"""

    bytes: int
    at: int
    born: dict[int, int]
    last: dict[int, int]

    def alive(self) -> list[int]:
        """Values that are in use at the peak, and that its Run does not make or free."""
        return [v for v, end in self.last.items() if self.born.get(v, -1) < self.at < end]


class Lifetimes:
    """ops: without reshapes; sizes: bytes by value; staying: values that are there before and after a run; maker: by
    value, the number of an op; late: number of the first op before which values are computed again; elsewhere: bytes
    of feeds and results in linear memory if the values are on a GPU"""

    def __init__(
        self, kernels: Sequence[Kernel], late: Kernel, outputs: Iterable[Tensor], scratch: int, on_gpu: bool
    ) -> None:  # fmt: skip
        """outputs: tensors that nothing frees; scratch: see `CodeWriter`; on_gpu: as if all values were there"""
        computing = [k for k in kernels if not isinstance(k, Alias)]
        self.ops = [Op.of(k, scratch, on_gpu) for k in computing]
        self.late = computing.index(late)
        self.maker = {v: n for n, op in enumerate(self.ops) for v in op.makes}
        used = {r.uid: r for k in computing for t in (*k.inputs, *k.outputs) for r in (root(t),)}
        self.sizes = {uid: bytes_of(t, GPU_ALIGN if on_gpu else ALIGN) for uid, t in used.items()}
        given = [t for uid, t in used.items() if uid not in self.maker]
        self.staying = {t.uid for t in given if not (isinstance(t.kernel, Leaf) and t.kernel.kind == "feed")}
        self.kept = self.staying | {root(t).uid for t in outputs}
        crossing = (used.keys() - self.maker.keys() - self.staying) | (self.kept & self.maker.keys())
        self.elsewhere = sum(map(self.size, crossing)) if on_gpu else 0

    def size(self, v: int) -> int:
        return self.sizes[v if v >= 0 else copy_of(v)]

    def runs(self, again: Collection[int]) -> list[Run]:
        """The ops in order, if from `late` on these values are computed again before the first op that reads them."""
        order: list[Run] = []
        made: set[int] = set()

        def replacement(v: int) -> int:
            """The value to read in place of v."""
            if v in again and v not in made:
                op = self.ops[self.maker[v]]
                reads = [replacement(x) for x in op.reads]
                made.update(op.makes)
                order.append(Run(self.maker[v], reads, [copy_of(x) for x in op.makes]))
            return copy_of(v) if v in made else v

        for n in range(self.late, len(self.ops)):
            reads = [replacement(v) for v in self.ops[n].reads]
            order.append(Run(n, reads, self.ops[n].makes))
        first = [Run(n, op.reads, op.makes) for n, op in enumerate(self.ops[: self.late])]
        return self._needed([*first, *self._freeing_first(order)])

    def _freeing_first(self, order: Sequence[Run]) -> list[Run]:
        """These runs, but one that frees more than it makes comes as soon as it can."""
        left = Counter([v for run in order for v in run.reads])
        missing = {v for run in order for v in run.makes}
        readers: dict[int, list[int]] = {}
        for n, run in enumerate(order):
            for v in run.reads:
                readers.setdefault(v, []).append(n)
        found: list[Run] = []
        done: set[int] = set()

        def frees(run: Run) -> bool:
            if not self.ops[run.op].may_move or not missing.isdisjoint(run.reads):
                return False
            freed = sum(self.size(v) for v in run.reads if left[v] == 1 and v not in self.kept)
            return freed > sum(map(self.size, run.makes))

        for next_one in range(len(order)):
            todo = [next_one]
            while todo:
                n = todo.pop()
                run = order[n]
                if n in done or n != next_one and not frees(run):
                    continue
                found.append(run)
                done.add(n)
                left.subtract(run.reads)
                missing.difference_update(run.makes)
                todo += sorted({r for v in (*run.reads, *run.makes) for r in readers.get(v, ())} - done, reverse=True)
        return found

    def _needed(self, order: list[Run]) -> list[Run]:
        """Without ops whose results nothing reads."""
        used = set(self.kept)
        found = []
        for run in reversed(order):
            if self.ops[run.op].acts or not used.isdisjoint(run.makes):
                used.update(run.reads)
                found.append(run)
        return found[::-1]

    def given(self) -> Peak:
        """The peak of the kernels as they are."""
        return self._peak(self._needed([Run(n, op.reads, op.makes) for n, op in enumerate(self.ops)]))

    def peak(self, again: Collection[int]) -> Peak:
        return self._peak(self.runs(again))

    def _peak(self, runs: Sequence[Run]) -> Peak:
        last = {v: n for n, run in enumerate(runs) for v in (*run.reads, *run.makes)}
        born = {v: n for n, run in enumerate(runs) for v in run.makes}
        now = self.elsewhere + sum(self.size(v) for v in {*self.staying, *last} - born.keys())
        found = Peak(now, -1, born, last)
        for n, run in enumerate(runs):
            op = self.ops[run.op]
            dying = {v for v in (*run.reads, *run.makes) if last[v] == n and v not in self.kept}
            over = any(v in dying for v, own in zip(run.reads, op.reads, strict=True) if own in op.over)
            made = 0 if over else sum(map(self.size, run.makes))
            if now + made + op.scratch > found.bytes:
                found.bytes, found.at = now + made + op.scratch, n
            now += sum(map(self.size, run.makes)) - sum(map(self.size, dying))
        return found
