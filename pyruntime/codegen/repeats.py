"""Reuses the code of kernels that differ only in their tensors: equal layers are lowered and printed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.codegen.provider import Invocation
from pyruntime.ir.form import Form
from pyruntime.ir.kernel import Kernel, Leaf, Tensor


class Repeats:
    """The calls that a code writer has written, by the kernels' structural key."""

    def __init__(self) -> None:
        self.written: dict[Any, tuple[list[Tensor], list[Invocation]]] = {}

    def calls(
        self, kernels: Sequence[Kernel], write: Callable[[], list[Invocation]], chosen: object = ()
    ) -> list[Invocation]:
        """The calls that run these kernels, all labelled with the last kernel's node. If kernels with the same key
        and tuning (`chosen`) were written before, reuses their calls with these tensors; else calls `write`."""
        form = Form(kernels)
        key = (form.key(), chosen)
        if key not in self.written:
            calls = write()
            self.written[key] = form.tensors, [replace(c) for c in calls]  # a copy, because callers change their calls
            return calls
        tensors, calls = self.written[key]
        now = {t.uid: own for t, own in zip(tensors, form.tensors, strict=True)}
        return [_call(c, kernels[-1].node, now) for c in calls]


def _call(c: Invocation, node: str, now: dict[int, Tensor]) -> Invocation:
    """The call with other tensors. Scratch tensors are made anew and added to `now`."""
    now |= {t.uid: Leaf("scratch").making(t.shape, t.dtype).out for t in c.scratch if t.uid not in now}
    tensors, scratch = [now[t.uid] for t in c.tensors], [now[t.uid] for t in c.scratch]
    inplace = [(now[a.uid], now[b.uid]) for a, b in c.inplace]
    return replace(c, tensors=tensors, node=node, scratch=scratch, inplace=inplace, results=())
