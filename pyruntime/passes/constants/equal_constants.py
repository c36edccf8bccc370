"""Merges equal maps of the init block: a weight that two products share is packed once."""

from __future__ import annotations

from pyruntime.ir.kernel import Alias, Block, Kernel, Map, Tensor
from pyruntime.ir.rewriting import rewrite_kernels


def merge_equal(init: Block) -> None:
    """Replace each map that equals an earlier one by an Alias of the earlier map's result."""
    first_result: dict[object, Tensor] = {}

    def merged(kernel: Kernel) -> Kernel | None:
        if not isinstance(kernel, Map):
            return None
        first = first_result.setdefault((kernel.expr.key(), kernel.out.shape, kernel.out.dtype), kernel.out)
        return None if first is kernel.out else Alias(first)

    rewrite_kernels(init, merged)
