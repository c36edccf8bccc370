"""Loops of more tensors than a shader may have storage buffers: several tensors share a buffer.

    joined = inputs                           copies before the loop
    the loop                                  reads and writes joined tensors
    outputs = joined                          copies after it

Scratch memory is joined first, because that needs no copies, then the smallest inputs, and then the smallest outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

from pyruntime.codegen.addressing import local_memory
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import DType
from pyruntime.ir.expr import Expr, dim, rem, rewrite
from pyruntime.ir.kernel import Builder, Leaf, Loops, Stmt, Store, Tensor, root
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import rebuild


@dataclass(slots=True)
class _Joined:
    """whole: scratch memory for all elements of these tensors; offsets: of each, by uid"""

    whole: Tensor
    tensors: list[Tensor]
    offsets: dict[int, AnyDim]

    def place(self, t: Tensor, coords: Sequence[Expr]) -> Expr:
        """The place of an element."""
        out = dim(self.offsets[t.uid])
        for c, stride in zip(coords, sh.strides(t.shape), strict=True):
            out = out + c * dim(stride)
        return out


def with_joined_tensors(kernel: Loops, limit: int, count: int) -> list[Loops]:
    """The kernels that compute a procedure: copies, and itself with fewer buffers. limit: the number of buffers that a
    shader may have; count: that of the procedure"""
    over, local = count - limit, local_memory(kernel)
    found: list[list[_Joined]] = []
    for pool in ([t for t in kernel.scratch if t not in local], _alone(kernel.inputs), kernel.outputs[1:]):
        found.append([])
        for group in _groups(pool):
            few = sorted(group, key=lambda t: sh.estimate(sh.size(t.shape)))[: over + 1]
            if len(few) > 1:
                over -= len(few) - 1
                found[-1].append(_joined(few))
    scratch, inputs, outputs = found
    of = {t.uid: j for j in (*scratch, *inputs, *outputs) for t in j.tensors}
    made = copy(kernel)
    made.args = (*[t for t in kernel.args if t.uid not in of], *[j.whole for j in inputs])
    made.outputs = tuple([t for t in kernel.outputs if t.uid not in of])
    made.scratch = (*[t for t in kernel.scratch if t.uid not in of], *[j.whole for j in (*scratch, *outputs)])
    made.body = _addressed(kernel.body, of)
    before = [_copies(kernel, j, n, limit - 1, True) for j in inputs for n in range(0, len(j.tensors), limit - 1)]
    after = [_copies(kernel, j, n, limit - 1, False) for j in outputs for n in range(0, len(j.tensors), limit - 1)]
    return [*before, made, *after]


def _alone(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that do not share memory with others."""
    roots = [root(t).uid for t in tensors]
    return [t for t, uid in zip(tensors, roots, strict=True) if roots.count(uid) == 1]


def _groups(pool: Sequence[Tensor]) -> list[list[Tensor]]:
    """The tensors whose elements are words, by type; the largest group first."""
    found: dict[DType, list[Tensor]] = {}
    for t in pool:
        if t.dtype.size >= 4:
            found.setdefault(t.dtype, []).append(t)
    return sorted(found.values(), key=len, reverse=True)


def _joined(tensors: list[Tensor]) -> _Joined:
    total: AnyDim = 0
    offsets: dict[int, AnyDim] = {}
    for t in tensors:
        offsets[t.uid] = total
        total = total + sh.size(t.shape)
    return _Joined(Tensor((total,), tensors[0].dtype, Leaf("scratch")), tensors, offsets)


def _copies(kernel: Loops, joined: _Joined, first: int, count: int, is_before: bool) -> Loops:
    """A procedure that copies `count` of the tensors, from number `first` on, into the joined one or back. Each that
    writes the joined one names it as scratch memory, because calls are ordered by what they write."""
    k, tensors = Builder(), joined.tensors[first : first + count]
    longest: AnyDim = 0
    for t in tensors:
        longest = sh.maximum(longest, sh.size(t.shape))
    with k.parallel(longest) as number:
        for t in tensors:
            with k.when(number < dim(sh.size(t.shape))):
                rest, coords = number, list[Expr]()
                for d in reversed(t.shape[1:]):
                    coords.insert(0, k.let(rem(rest, dim(d))))
                    rest = k.let(rest / dim(d))
                coords = [rest, *coords] if t.rank else []
                place = dim(joined.offsets[t.uid]) + number
                if is_before:
                    k.store(joined.whole, (place,), t.at(*coords))
                else:
                    k.store(t, coords, joined.whole.at(place))
    made = copy(kernel)
    made.name, made.body, made.scratch = "copies", k.body, (joined.whole,) if is_before else ()
    whole, own = (joined.whole,), tuple(tensors)
    made.args, made.outputs = (own, whole) if is_before else (whole, own)
    return made


def _addressed(body: list[Stmt], of: dict[int, _Joined]) -> list[Stmt]:
    """The statements with joined tensors in place of those that have become parts of these."""

    def load(e: Expr) -> Expr | None:
        if e.op != "at" or e.value.uid not in of:
            return None
        joined = of[e.value.uid]
        return joined.whole.at(joined.place(e.value, e.args))

    def statement(s: Stmt) -> Stmt:
        made = rebuild(s, lambda e: rewrite(e, load, memo), lambda inner: [statement(x) for x in inner])
        if isinstance(made, Store) and made.target.uid in of:
            joined = of[made.target.uid]
            return Store(joined.whole, (joined.place(made.target, made.coords),), made.value)
        return made

    memo: dict[int, Expr] = {}
    return [statement(s) for s in body]
