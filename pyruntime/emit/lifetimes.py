"""Liveness of buffers: the call that allocates each buffer, and the call or step that frees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.ir.kernel import Tensor, root


@dataclass(slots=True)
class Call:
    """A call of a segment: its JSON, the tensors that it reads and writes, and those that it writes if they are among
    these."""

    json: dict[str, Any]
    tensors: Sequence[Tensor]
    writes: Sequence[Tensor] = field(default=(), kw_only=True)


@dataclass(slots=True)
class Step(Call):
    """A step of a block. makes: tensors that exist only after it; calls: those of a segment, which allocate memory for
    their results (other steps allocate when they know the sizes)."""

    makes: Sequence[Tensor] = ()
    calls: list[Call] = field(default_factory=list)


def write_lifetimes(
    steps: Sequence[Step], received: set[int], outliving: set[int], numbers: Mapping[int, int]
) -> set[int]:
    """Write `alloc` and `updates` into calls, and `free` into calls and into steps without calls.

    received: uids of tensors from outside that the block must free
    outliving: uids of tensors that the block must not free
    numbers: numbers of buffers by uid
    Returns the received uids that nothing uses.
    """
    made = {t.uid for step in steps for t in step.makes}
    made_by_calls = {t.uid for step in steps if step.calls for t in step.makes}
    unused = _write_frees(steps, (received | made) - outliving, numbers)
    _write_allocs(steps, made_by_calls, numbers)
    return unused


def _write_frees(steps: Sequence[Step], alive: set[int], numbers: Mapping[int, int]) -> set[int]:
    """Visits steps from the last to the first: the first visit of a tensor is its last use."""
    for step in reversed(steps):
        for user in reversed(step.calls or [step]):
            dying = [uid for uid in _buffers_of(user) if uid in alive]
            user.json["free"] = [numbers[uid] for uid in dying]
            alive.difference_update(dying)
    return alive


def _write_allocs(steps: Sequence[Step], waiting: set[int], numbers: Mapping[int, int]) -> None:
    for step in steps:
        for call in step.calls:
            used = _buffers_of(call)
            fresh = [uid for uid in used if uid in waiting]
            call.json["alloc"] = [numbers[uid] for uid in fresh]
            updated = {root(t).uid for t in call.writes} - set(fresh)
            if found := [numbers[uid] for uid in used if uid in updated]:
                call.json["updates"] = found
            waiting.difference_update(fresh)


def _buffers_of(user: Call) -> list[int]:
    """Uids of the tensors whose buffers a call or step uses, each once."""
    return list(dict.fromkeys(root(t).uid for t in user.tensors))
