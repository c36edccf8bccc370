"""Gradients of long loops in little memory.

The backward pass of a loop needs what each step was entered with. So a long loop is recorded again, as a loop over
chunks of its steps:

    for each chunk                       its gradient stores what each chunk was entered with,
        for each step of the chunk       and runs each chunk again to store what its steps were entered with
            body
    for each of the remaining steps      fewer than two chunks have
        body

T steps need memory for T / CHUNK + 2 CHUNK states at most, and the gradient takes as much more time as a run of the
loop. All parts are ordinary loops of few steps, and their gradients follow by the rules for these.

If only a run tells the number of steps, a loop before these counts them, and computes only what the condition needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt

from pyruntime.frontend.own_gradients import Cotangents
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, I32, I64
from pyruntime.ir.expr import Expr, X, cast, const, dim, maximum
from pyruntime.ir.kernel import Block, Loop, Read, Tensor, free
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.standard.control import block_outputs
from pyruntime.training.derive.backward_walk import OutputCotangents, Walk
from pyruntime.training.derive.loop_slices import slices
from pyruntime.training.derive.replay import record_again

CHUNK = 64  # steps, or more if the number of steps is known and large
LONG = 2 * CHUNK  # steps of a loop that is divided

Step = Callable[[Tensor, list[Tensor]], list[Tensor]]  # number, carried -> new carried, values to stack


def counted(t: Tracer, start: Sequence[Tensor], count: AnyDim, step: Step, is_part: bool) -> list[Tensor]:
    """Record a loop of `count` steps; returns its carried and stacked values."""
    trip = t.reshape(t.dims([count]), ())
    with t.sub_block() as block:
        number, going = t.leaf("block", (), I64), t.leaf("block", (), BOOL)
        carried = [t.leaf("block", x.shape, x.dtype) for x in start]
        outs = step(number, carried)
        condition = t.compute((), lambda: going.at())
    block.inputs = (number, going, *carried)
    block.outputs = block_outputs(t, block, [condition, *outs])
    shapes = [(x.shape, x.dtype) for x in start]
    shapes += [((count, *x.shape), x.dtype) for x in outs[len(start) :]]
    loop = Loop(trip, None, tuple(start), block, limit=count, is_counted=True, is_part=is_part)
    return list(t.add(loop, shapes))


def is_long(t: Tracer, kernel: Loop) -> bool:
    """Whether the states of all steps may take much memory. They take little beside slices and stacks that are larger
    than the states: without them, a step would still need two thirds of its memory."""
    if kernel.is_part or (kernel.limit is not None and sh.interval(kernel.limit)[1] < LONG):
        return False
    if any(axis for _, axis, _ in kernel.binds):  # the step decides a dim
        return False
    body = kernel.body
    read = [s.out for x in free(body) for s in slices(t, body, x)]
    stacked = body.outputs[1 + len(kernel.carried) :]
    return _bytes(kernel.carried) > 0 and _bytes(kernel.carried) >= _bytes([*read, *stacked])


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(sh.estimate(sh.size(x.shape)) * x.dtype.size for x in tensors)


def has_limit(kernel: Loop) -> bool:
    """Whether the number of steps is a dim before the loop runs."""
    return kernel.is_counted and kernel.limit is not None


def chunk_size(count: AnyDim) -> int:
    """About the root of the number of steps if that is known, and a divisor of it if there is one near."""
    if not isinstance(count, int):
        return CHUNK
    wanted = max(CHUNK, isqrt(count))
    near = sorted(range(wanted // 2, 2 * wanted), key=lambda size: abs(size - wanted))
    return next((size for size in near if count % size == 0), wanted)


def of_long_loop(walk: Walk, kernel: Loop, gs: OutputCotangents) -> Cotangents:
    """Replaces the loop by one over chunks; its gradient is theirs."""
    active = {x.uid: x for x in kernel.inputs if walk.is_active(x)}.values()
    inner = walk.inner(_Division(walk, kernel).block(), active)
    inner.run([(o, g) for o, g in zip(kernel.outputs, gs, strict=True) if g is not None])
    return [(x, inner.cotangent_of[x.uid]) for x in active if x.uid in inner.cotangent_of]


class _Division:
    """Divides a loop of the forward pass into chunks.

    slices: those that the steps read of active tensors. A chunk copies the slices of its steps, and the steps read the
    copy, so that their cotangents are as large as the chunk and not as the whole tensor.
    steps: the body without the kernels that make the slices"""

    def __init__(self, walk: Walk, kernel: Loop) -> None:
        self.t, self.kernel, self.body = walk.t, kernel, kernel.body
        active = [x for x in free(kernel.body) if walk.is_active(x)]
        self.slices = [s for x in active for s in slices(self.t, kernel.body, x)]
        made = {s.out.uid for s in self.slices}
        self.steps = Block((), [k for k in kernel.body.kernels if not any(o.uid in made for o in k.outputs)])

    def block(self) -> Block:
        """The kernels that now make the loop's outputs, and have its place in the current block."""
        t, kernel, before = self.t, self.kernel, (self.t.node, self.t.is_backward)
        t.node, t.is_backward = kernel.node, kernel.is_backward
        with t.sub_block() as block:
            made = self._record()
        t.node, t.is_backward = before
        for old, new in zip(kernel.outputs, made, strict=True):
            maker = new.kernel
            maker.outputs = tuple([old if x is new else x for x in maker.outputs])
            old.kernel, old.index = maker, new.index
        place = next(n for n, k in enumerate(t.block.kernels) if k is kernel)
        t.block.kernels[place : place + 1] = block.kernels
        return block

    def _record(self) -> list[Tensor]:
        t, states = self.t, len(self.kernel.carried)
        count = self._count()
        size = chunk_size(count)
        turns = count // size
        if not isinstance(count, int):  # one chunk less: a run of few steps should not run any again
            turns = sh.maximum(turns - 1, 0)
        done = turns * size

        def chunk(number: Tensor, carried: list[Tensor]) -> list[Tensor]:
            return self._part(carried, size, cast(number.at(), I32) * size)

        made = counted(t, self.kernel.carried, turns, chunk, is_part=True)
        stacks = [t.reshape(x, (done, *x.shape[2:])) for x in made[states:]]
        if count - done == 0:
            return made[:states] + stacks
        rest = self._part(made[:states], count - done, dim(done))
        return rest[:states] + [t.concat(pair, 0) for pair in zip(stacks, rest[states:], strict=True)]

    def _count(self) -> AnyDim:
        """The number of steps, which a Read makes a dim if it is none."""
        t, kernel = self.t, self.kernel
        if kernel.is_counted and kernel.limit is not None:
            return sh.maximum(kernel.limit, 0)
        symbols = tuple([symbol for _, _, symbol in kernel.binds]) or (t.symbol(),)
        steps = kernel.trip if kernel.is_counted and kernel.trip is not None else self._counted_by_run()
        t.add(Read(t.compute((len(symbols),), lambda i: maximum(steps.at(), const(0, I64))), symbols), ())
        return sh.dim_of(symbols[0])

    def _counted_by_run(self) -> Tensor:
        """The number of steps, from a loop of what the condition needs."""
        t, kernel, body = self.t, self.kernel, self.body
        needed = _deciding(body)
        states = [n for n, x in enumerate(body.inputs[2:]) if x.uid in needed]
        start = [*[kernel.carried[n] for n in states], t.scalar(0, I64)]
        inputs = [*body.inputs[:2], *[body.inputs[2 + n] for n in states]]
        with t.sub_block() as block:
            leaves = [t.leaf("block", x.shape, x.dtype) for x in inputs]
            count = t.leaf("block", (), I64)
            kernels = [k for k in body.kernels if any(o.uid in needed for o in k.outputs)]
            of = {x.uid: leaf for x, leaf in zip(inputs, leaves, strict=True)}
            of |= record_again(t, Block((), kernels), of)
            outs = [of.get(x.uid, x) for x in (body.outputs[0], *[body.outputs[1 + n] for n in states])]
            outs.append(t.map(X + 1, count))
        block.inputs, block.outputs = (*leaves, count), block_outputs(t, block, outs)
        loop = Loop(kernel.trip, kernel.condition, tuple(start), block, limit=kernel.limit, is_part=True)
        return t.add(loop, [(x.shape, x.dtype) for x in start])[-1]

    def _part(self, start: Sequence[Tensor], count: AnyDim, first: Expr) -> list[Tensor]:
        """`count` steps from the step `first` on."""
        t, body = self.t, self.body
        copies = [s.several(t, first, count) for s in self.slices]

        def step(number: Tensor, carried: list[Tensor]) -> list[Tensor]:
            whole = t.compute((), lambda: cast(first, I64) + number.at())
            replaced = {x.uid: new for x, new in zip(body.inputs, (whole, t.scalar(True, BOOL), *carried), strict=True)}
            for s, copy in zip(self.slices, copies, strict=True):
                replaced[s.out.uid] = s.one_of(t, copy, number)
            of = record_again(t, self.steps, replaced)
            return [of.get(x.uid, x) for x in body.outputs[1:]]

        return counted(t, start, count, step, is_part=True)


def _deciding(body: Block) -> set[int]:
    """What the condition of a loop depends on in all steps, by uid."""
    found, before = {body.outputs[0].uid}, 0
    while len(found) > before:
        before = len(found)
        for kernel in reversed(body.kernels):
            if any(o.uid in found for o in kernel.outputs):
                found |= {x.uid for x in kernel.inputs}
        found |= {new.uid for x, new in zip(body.inputs[2:], body.outputs[1:], strict=False) if x.uid in found}
    return found
