"""Tuning knobs: parameters of schedules that a measurement may choose instead of the schedule's own rule
(docs/design/compiler.md#tuning-schedules)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pyruntime.errors import InvalidInput

WINOGRAD_TILES = "winograd_tiles"  # tiles of a work unit, which determine its scratch: wasm/schedules/winograd.py
CONTRACTION_TILE = "contraction_tile"  # rows and columns of a work unit: webgpu/schedules/register_tile.py
ATTENTION_FORM = "attention_form"  # sizes of attention's blocks, or its products apart: webgpu/schedules/attention.py


class Knob(NamedTuple):
    """provider: the provider whose schedules have the knob; values: the values to try (tests/test_choices.py runs
    each)."""

    provider: str
    values: tuple[int, ...]


KNOBS = {
    WINOGRAD_TILES: Knob("wasm", (32, 128)),
    CONTRACTION_TILE: Knob("webgpu", (4, 8, 16, 32)),
    ATTENTION_FORM: Knob("webgpu", (1, 2, 3, 4)),
}
OTHERS = ""  # the key for all nodes without an entry of their own

Chosen = Mapping[str, Mapping[str, int]]  # knob -> label of a node -> value


class Choices:
    """The chosen values by knob and node. Errors: InvalidInput for a knob or value that is not in KNOBS."""

    def __init__(self, chosen: Any = None) -> None:
        self.chosen: Chosen = {} if chosen is None else _checked(chosen)

    def of(self, knob: str, node: str) -> int | None:
        """The chosen value for kernels of this node; None: the schedule's rule decides."""
        values = self.chosen.get(knob, {})
        return values.get(node, values.get(OTHERS))

    def at(self, node: str) -> tuple[int | None, ...]:
        """All chosen values for kernels of this node."""
        return tuple([self.of(knob, node) for knob in self.chosen])


def trials(providers: Collection[str]) -> list[Chosen]:
    """Return choices that together contain each value of each knob of these providers. One choice sets a value of every
    knob, because no kernel has two, except that attention may run as products, which have tiles."""
    knobs = {name: knob.values for name, knob in KNOBS.items() if knob.provider in providers}
    most = max(map(len, knobs.values()), default=0)
    return [{name: {OTHERS: values[n]} for name, values in knobs.items() if n < len(values)} for n in range(most)]


def _checked(chosen: Any) -> Chosen:
    if not isinstance(chosen, Mapping):
        raise InvalidInput(f"choices cannot be {chosen!r}", hint="the result of `tune`, or None")
    for knob, values in chosen.items():
        if knob not in KNOBS:
            raise InvalidInput(f"there is no tuning knob {knob!r}", hint=f"one of {', '.join(KNOBS)}")
        if not isinstance(values, Mapping) or not all(isinstance(node, str) for node in values):
            raise InvalidInput(
                f"{knob} takes values by node, not {values!r}", hint=f'the key "{OTHERS}" means all other nodes'
            )
        for value in values.values():
            if isinstance(value, bool) or value not in KNOBS[knob].values:
                raise InvalidInput(f"{knob} cannot be {value!r}", hint=f"one of {KNOBS[knob].values}")
    return chosen
