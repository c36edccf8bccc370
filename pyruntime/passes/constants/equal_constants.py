"""What maps make twice of the same constants is made once: codes in panels of a weight that two products share."""

from __future__ import annotations

from pyruntime.ir.kernel import Alias, Block, Kernel, Map, Tensor
from pyruntime.ir.rewriting import rewrite_kernels


def merge_equal(init: Block) -> None:
    """Of equal maps in the init block the later ones become other names of the first."""
    made: dict[object, Tensor] = {}

    def merged(kernel: Kernel) -> Kernel | None:
        if not isinstance(kernel, Map):
            return None
        first = made.setdefault((kernel.expr.key(), kernel.out.shape, kernel.out.dtype), kernel.out)
        return None if first is kernel.out else Alias(first)

    rewrite_kernels(init, merged)


__all__ = ["merge_equal"]
