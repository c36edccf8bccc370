"""The gradients of If and Loop: the backward pass runs each body again, from what it was entered with, and then
backwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.errors import NotDifferentiable
from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, I32, I64
from pyruntime.ir.expr import X, Y, cast, dim
from pyruntime.ir.kernel import Block, If, Loop, Tensor, free
from pyruntime.ops.standard.control import block_outputs
from pyruntime.training.derive.backward_walk import OutputCotangents, Walk
from pyruntime.training.derive.long_loops import counted, has_limit, is_long, of_long_loop
from pyruntime.training.derive.loop_slices import slices
from pyruntime.training.derive.replay import record_again


def _zeros(t: Tracer, x: Tensor) -> Tensor:
    return t.fill(x.shape, 0.0, x.dtype)


def _sum(t: Tracer, a: Tensor, b: Tensor | None) -> Tensor:
    return a if b is None else t.map(X + Y, a, b)


def of_if(walk: Walk, kernel: If, gs: OutputCotangents) -> Cotangents:
    """An If of the reversed branches. A branch gives zeros for a tensor that it does not reach."""
    t = walk.t
    outer = list({x.uid: x for x in kernel.inputs[1:] if walk.is_active(x)}.values())
    branches: list[Block] = []
    for branch in kernel.blocks:
        with t.sub_block() as block:
            of = record_again(t, branch, {})
            inner = walk.inner(block, outer)
            inner.run([(of[o.uid], g) for o, g in zip(branch.outputs, gs, strict=True) if g is not None])
            values = [inner.cotangent_of.get(x.uid) or _zeros(t, x) for x in outer]
        block.outputs = block_outputs(t, block, values)
        branches.append(block)
    then, orelse = branches
    outs = t.add(If(kernel.condition, then, orelse), [(x.shape, x.dtype) for x in outer])
    return list(zip(outer, outs, strict=True))


def of_loop(walk: Walk, kernel: Loop, gs: OutputCotangents) -> Cotangents:
    if kernel.enters:
        raise NotDifferentiable("a loop whose carried values change their shape has no gradient")
    if (has_limit(kernel) or not walk.t.depth) and is_long(walk.t, kernel):  # blocks that Read are not recorded again
        return of_long_loop(walk, kernel, gs)
    return _ReverseLoop(walk, kernel, gs).record()


class _ReverseLoop:
    """The forward loop stacks what each iteration is entered with. The backward loop runs as many iterations, the last
    one first: each records the body again, reverses it, and carries the cotangents of carried values and the sums of
    those of outer tensors. Of outer tensors of which each step reads a slice, it stacks the cotangents of the slices: a
    sum over such a tensor in each step would take time quadratic in the number of steps."""

    def __init__(self, walk: Walk, kernel: Loop, gs: OutputCotangents) -> None:
        self.walk, self.t, self.kernel, self.gs = walk, walk.t, kernel, gs
        body, t = kernel.body, walk.t
        self.entered = body.inputs[2:]
        self.live = [i for i, x in enumerate(kernel.carried) if x.dtype.is_float]
        active = [x for x in free(body) if walk.is_active(x)]
        self.slices = [(x, found) for x in active if (found := slices(t, body, x))]
        sliced = {x.uid for x, _ in self.slices}
        self.outer = [x for x in active if x.uid not in sliced]
        # from here on the forward loop also stacks what its iterations are entered with
        before = len(kernel.outputs)
        body.outputs = (*body.outputs, *block_outputs(t, body, self.entered))
        self.count: sh.AnyDim
        if kernel.is_counted and kernel.limit is not None:
            self.count = sh.maximum(kernel.limit, 0)
        else:
            symbol = t.symbol()
            self.count = sh.dim_of(symbol)
            kernel.binds = (*kernel.binds, (len(kernel.carried), 0, symbol))  # the first output that is stacked
        self.stacks = [Tensor((self.count, *x.shape), x.dtype, kernel, before + n) for n, x in enumerate(self.entered)]
        kernel.outputs = (*kernel.outputs, *self.stacks)
        self.results = body.outputs[1 : before + 1]

    def record(self) -> Cotangents:
        t, kernel = self.t, self.kernel
        start = [self.gs[i] or _zeros(t, kernel.carried[i]) for i in self.live]
        start += [_zeros(t, x) for x in self.outer]
        made = counted(t, start, self.count, self._body, kernel.is_part)
        operands = [kernel.carried[i] for i in self.live] + self.outer
        stacks = iter(made[len(start) :])
        whole = [(x, self.walk.like(x, s.cotangent(t, next(stacks)))) for x, found in self.slices for s in found]
        return list(zip(operands, made, strict=False)) + whole

    def _at(self, stack: Tensor, step: Tensor) -> Tensor:
        """The slice of the step that is reversed."""
        place = dim(self.count - 1) - cast(step.at(), I32)
        return self.t.compute(stack.shape[1:], lambda *i: stack.at(place, *i))

    def _body(self, step: Tensor, carried: list[Tensor]) -> list[Tensor]:
        """The new values of the carried tensors, then the cotangents of slices."""
        t, kernel, body = self.t, self.kernel, self.kernel.body
        number, going, *_ = body.inputs
        n = t.compute((), lambda: cast(dim(self.count - 1), I64) - step.at())
        replaced = {number.uid: n, going.uid: t.scalar(True, BOOL)}
        replaced |= {x.uid: self._at(s, step) for x, s in zip(self.entered, self.stacks, strict=True)}
        of = record_again(t, body, replaced)
        wanted = [replaced[self.entered[i].uid] for i in self.live]
        read = [_of(of, s.out) for _, found in self.slices for s in found]
        inner = self.walk.inner(t.block, [*wanted, *self.outer, *read])
        seeds: list[tuple[Tensor, Tensor]] = []
        for i, g in zip(self.live, carried, strict=False):
            seeds.append((_of(of, self.results[i]), g))
        for i in range(len(kernel.carried), len(self.results)):
            stacked = self.gs[i]
            if stacked is not None:
                seeds.append((_of(of, self.results[i]), self._at(stacked, step)))
        inner.run(seeds)
        outs = [inner.cotangent_of.get(x.uid) or _zeros(t, x) for x in wanted]
        sums = carried[len(self.live) :]
        outs += [_sum(t, a, inner.cotangent_of.get(x.uid)) for a, x in zip(sums, self.outer, strict=True)]
        return outs + [inner.cotangent_of.get(x.uid) or _zeros(t, x) for x in read]


def _of(of: Mapping[int, Any], x: Tensor) -> Tensor:
    return of.get(x.uid, x)
