"""Updates of states in place, as kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, cast, dim, minimum, select
from pyruntime.ir.kernel import Alias, Builder, Leaf, Map, Tensor, tensors_in
from pyruntime.ir.shape import AnyDim

CHUNK = 4096  # elements of a work unit


@dataclass(slots=True)
class Updates:
    """Writes states whose changes belong to one step. is_good: a scalar that is 0 if the step must change nothing;
    times: 0 or 1, of which 0 leaves all updates out; made: the states that were updated, so far"""

    t: Tracer
    is_good: Tensor
    times: AnyDim
    made: list[Tensor]

    def write(
        self, state: Tensor, of: Sequence[Tensor], scalars: Sequence[Expr], value: Callable[..., Expr]
    ) -> Tensor:  # fmt: skip
        """state = value(state, *of, *scalars), element by element. of: tensors of its shape. Returns the new state."""
        t, size = self.t, sh.size(state.shape)
        flat = [t.reshape(x, (size,)) for x in (state, *[settled(t, x) for x in of])]
        scalar_tensors = tensors_in(*scalars) if scalars else ()

        def body(k: Builder, out: Tensor) -> None:
            with k.parallel(dim(sh.ceildiv(size, CHUNK) * self.times)) as block:
                low = k.let(block * CHUNK)
                good = k.let(self.is_good.at() > 0.0)
                numbers = [k.let(cast(x, state.dtype)) for x in scalars]
                with k.loop(k.let(minimum(dim(size) - low, CHUNK)), "vector") as i:
                    old = out.at(low + i)
                    new = value(old, *[cast(x.at(low + i), state.dtype) for x in flat[1:]], *numbers)
                    k.store(out, (low + i,), select(good, new, old))

        args = dict.fromkeys([*flat, self.is_good, *scalar_tensors])
        made = t.loops("update", list(args), [((size,), state.dtype)], body)[0]
        made.kernel.base = flat[0]  # type: ignore[attr-defined]
        self.made.append(made)
        return t.reshape(made, state.shape)


def settled(t: Tracer, x: Tensor) -> Tensor:
    """x, or a copy if it is only a view of a state: an update before its reader would change it."""
    source = x
    while isinstance(source.kernel, (Alias, Map)):
        loads = source.kernel.inputs
        if isinstance(source.kernel, Map) and (source.kernel.expr.op != "at" or len(loads) != 1):
            return x
        source = loads[0]
    if not (isinstance(source.kernel, Leaf) and source.kernel.kind == "state"):
        return x
    size = sh.size(x.shape)
    flat = t.reshape(x, (size,))

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(sh.ceildiv(size, CHUNK))) as block:
            low = k.let(block * CHUNK)
            with k.loop(k.let(minimum(dim(size) - low, CHUNK)), "vector") as i:
                k.store(out, (low + i,), flat.at(low + i))

    return t.reshape(t.loops("copy", [flat], [((size,), x.dtype)], body)[0], x.shape)
