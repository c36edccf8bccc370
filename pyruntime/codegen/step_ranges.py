"""Procedures of many steps, such as whole loops, in ranges of steps.

    parallel over units                   parallel over units, for each range
        start                                 if it is the first: start
        for each step: …                      for each step of the range: …

Between two ranges of a unit a run can be stopped, and a dispatch of a GPU, or a call in a page, takes little time. So
each kernel call has one range or several: on the CPU ranges are work units, of which one thread runs all that belong to
a unit in order; a GPU has a dispatch for each range, with the number of the range as a parameter.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from pyruntime.codegen.loop_ir import RangeNumber
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, binary, const, dim, minimum, rem
from pyruntime.ir.kernel import For, Kernel, Let, Loops, Stmt, When
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import statements


class Steps(NamedTuple):
    """A procedure's loop over its steps, inside of the loop over its units."""

    units: For
    loop: For

    def ranges(self, length: AnyDim) -> AnyDim:
        """The number of ranges of so many steps, at least one."""
        return sh.maximum(sh.ceildiv(self.loop.extent.value, length), 1)


def steps_of(kernel: Kernel) -> Steps | None:
    """The steps of a procedure that can be divided into ranges."""
    if not isinstance(kernel, Loops) or len(kernel.body) != 1 or not isinstance(kernel.body[0], For):
        return None
    units = kernel.body[0]
    loops = [s for s in units.body if isinstance(s, For) and s.kind == "steps" and s.extent.op in ("const", "dim")]
    return Steps(units, loops[0]) if loops else None


def as_work_units(kernel: Loops, length: AnyDim) -> tuple[Loops, AnyDim]:
    """The procedure with its ranges as work units, unit by unit, and the number of consecutive work units that must run
    in order. length: steps of a range"""
    steps = steps_of(kernel)
    if steps is None or (count := steps.ranges(length)) == 1:
        return kernel, 1
    unit, (work, number) = steps.units.var, _new(kernel, 2)
    body = [
        Let(unit, binary("div", work, dim(count))),
        Let(number.value, rem(work, dim(count))),
        *_range(kernel, steps, length, count, number),
    ]
    return _with_body(kernel, For(work.value, dim(steps.units.extent.value * count), body, "parallel")), count


def as_dispatches(kernel: Loops, length: AnyDim) -> Loops:
    """The procedure of one range, whose number is a parameter. length: steps of a range"""
    steps = steps_of(kernel)
    if steps is None or (count := steps.ranges(length)) == 1:
        return kernel
    number = Expr("range", (), I32, RangeNumber(count))
    body = _range(kernel, steps, length, count, number)
    return _with_body(kernel, For(steps.units.var, steps.units.extent, body, "parallel"))


def _range(kernel: Loops, steps: Steps, length: AnyDim, count: AnyDim, number: Expr) -> list[Stmt]:
    """The statements of a unit for one range. Variables are computed for each range; other statements around the loop
    run in the first range, or in the last."""
    loop, before = steps.loop, steps.units.body.index(steps.loop)
    first, step = _new(kernel, 4)[2:]
    after = steps.units.body[before + 1 :]
    start: list[Stmt] = [s for s in steps.units.body[:before] if not isinstance(s, Let)]
    inner = [Let(loop.var, first + step), *loop.body]
    out: list[Stmt] = [s for s in steps.units.body[:before] if isinstance(s, Let)]
    out += [When(binary("eq", number, const(0, I32)), start, [])] if start else []
    out.append(Let(first.value, number * dim(length)))
    out.append(For(step.value, minimum(dim(loop.extent.value) - first, dim(length)), inner, "steps"))
    out += [When(binary("eq", number, dim(count - 1)), after, [])] if after else []
    return out


def _new(kernel: Loops, count: int) -> list[Expr]:
    """Variables that the procedure does not have."""
    used = 1 + max(s.var for s in statements(kernel.body) if isinstance(s, (Let, For)))
    return [Expr("var", (), I32, used + n) for n in range(count)]


def _with_body(kernel: Loops, units: For) -> Loops:
    made = copy(kernel)
    made.body = [units]
    return made
