"""Tuning knobs: parameters of schedules that a measurement may choose instead of the schedule's own rule
(docs/design/compiler.md#tuning-schedules)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pyruntime.errors import InvalidInput

WINOGRAD_TILES = "winograd_tiles"  # tiles of a work unit, which determine its scratch: wasm/schedules/winograd.py
CONTRACTION = "contraction"  # the schedule: webgpu/schedules/register_tile.py, workgroup_tile.py
ATTENTION = "attention"  # the schedule: webgpu/schedules/attention.py


class Knob(NamedTuple):
    """provider: the provider whose schedules have the knob; values: the numbers, or the names of schedules, to try
    (tests/test_choices.py runs each)."""

    provider: str
    values: tuple[int, ...] | tuple[str, ...]


KNOBS = {
    WINOGRAD_TILES: Knob("wasm", (32, 128)),
    CONTRACTION: Knob("webgpu", ("register_4", "register_8", "register_16", "workgroup_32")),
    ATTENTION: Knob("webgpu", ("split_below_128", "split_below_2048", "blocks_of_256", "three_kernels")),
}
OTHERS = ""  # the key for all nodes without an entry of their own

Chosen = Mapping[str, Mapping[str, int | str]]  # knob -> label of a node -> value


class Choices:
    """The chosen values by knob and node. Errors: InvalidInput for a knob or value that is not in KNOBS."""

    def __init__(self, chosen: Any = None) -> None:
        self.chosen: Chosen = {} if chosen is None else _checked(chosen)

    def of(self, knob: str, node: str) -> Any:
        """The chosen value for kernels of this node; None: the schedule's rule decides."""
        values = self.chosen.get(knob, {})
        return values.get(node, values.get(OTHERS))

    def at(self, node: str) -> tuple[Any, ...]:
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
