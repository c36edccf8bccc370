"""Lifetimes of buffers: before which call of a segment memory is taken, after which call or step it is given back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.ir.kernel import Tensor, root


@dataclass(slots=True)
class Call:
    """A call of a segment: its JSON, and the tensors it reads and writes."""

    json: dict[str, Any]
    tensors: Sequence[Tensor]


@dataclass(slots=True)
class Step(Call):
    """A step of a block. makes: what is there only after it; calls: those of a segment, which take memory for what they
    make (other steps do so by themselves, when they know the sizes)."""

    makes: Sequence[Tensor] = ()
    calls: list[Call] = field(default_factory=list)


def write_lifetimes(
    steps: Sequence[Step], received: set[int], outliving: set[int], numbers: Mapping[int, int]
) -> set[int]:
    """Write `alloc` into calls, and `free` into calls and the steps that have none.

    received: uids of what the block is handed and must free; outliving: of what it must not free; numbers: of buffers,
    by uid. Gives the uids of what was to be freed and that nothing uses.
    """
    made = {t.uid for step in steps for t in step.makes}
    made_by_calls = {t.uid for step in steps if step.calls for t in step.makes}
    unused = _write_frees(steps, (received | made) - outliving, numbers)
    _write_allocs(steps, made_by_calls, numbers)
    return unused


def _write_frees(steps: Sequence[Step], alive: set[int], numbers: Mapping[int, int]) -> set[int]:
    """From the last step to the first: what is met for the first time is used for the last time."""
    for step in reversed(steps):
        for user in reversed(step.calls or [step]):
            dying = [uid for uid in _held(user) if uid in alive]
            user.json["free"] = [numbers[uid] for uid in dying]
            alive.difference_update(dying)
    return alive


def _write_allocs(steps: Sequence[Step], waiting: set[int], numbers: Mapping[int, int]) -> None:
    for step in steps:
        for call in step.calls:
            fresh = [uid for uid in _held(call) if uid in waiting]
            call.json["alloc"] = [numbers[uid] for uid in fresh]
            waiting.difference_update(fresh)


def _held(user: Call) -> list[int]:
    """The uids of the tensors whose buffers it uses, each once."""
    return list(dict.fromkeys(root(t).uid for t in user.tensors))


__all__ = ["Call", "Step", "write_lifetimes"]
