"""What a measurement may decide in place of a schedule's own rule: the knobs, and what was chosen
(docs/design/compiler.md#tuning-schedules)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pyruntime.errors import InvalidInput

WINOGRAD_TILES = "winograd_tiles"  # of a work unit, whose scratch follows: wasm/schedules/winograd.py
CONTRACTION_TILE = "contraction_tile"  # values of each factor in a work unit: webgpu/schedules/register_tile.py


class Knob(NamedTuple):
    """The provider whose kernels it is of, and values worth a try, all of which tests/test_choices.py knows."""

    provider: str
    values: tuple[int, ...]


KNOBS = {WINOGRAD_TILES: Knob("wasm", (32, 128)), CONTRACTION_TILE: Knob("webgpu", (4, 8, 16, 32))}
OTHERS = ""  # stands for all nodes that are not named

Chosen = Mapping[str, Mapping[str, int]]  # knob -> label of a node -> value


class Choices:
    """What was chosen, by knob and by node. Errors: InvalidInput for a knob or a value that is not among KNOBS."""

    def __init__(self, chosen: Any = None) -> None:
        self.chosen: Chosen = {} if chosen is None else _checked(chosen)

    def of(self, knob: str, node: str) -> int | None:
        """The value for a kernel of this node; None: the rule decides."""
        values = self.chosen.get(knob, {})
        return values.get(node, values.get(OTHERS))

    def at(self, node: str) -> tuple[int | None, ...]:
        """All that was chosen for a kernel of this node."""
        return tuple([self.of(knob, node) for knob in self.chosen])


def trials(providers: Collection[str]) -> list[Chosen]:
    """Choices that together have each value of each knob of these. No kernel has two, so one of each at once."""
    knobs = {name: knob.values for name, knob in KNOBS.items() if knob.provider in providers}
    most = max(map(len, knobs.values()), default=0)
    return [{name: {OTHERS: values[n]} for name, values in knobs.items() if n < len(values)} for n in range(most)]


def _checked(chosen: Any) -> Chosen:
    if not isinstance(chosen, Mapping):
        raise InvalidInput(f"choices cannot be {chosen!r}", hint="what `tune` gave, or None")
    for knob, values in chosen.items():
        if knob not in KNOBS:
            raise InvalidInput(f"there is no knob {knob!r} to choose", hint=f"one of {', '.join(KNOBS)}")
        if not isinstance(values, Mapping) or not all(isinstance(node, str) for node in values):
            raise InvalidInput(f"{knob} is chosen by node, not {values!r}", hint=f'"{OTHERS}" stands for all others')
        for value in values.values():
            if isinstance(value, bool) or value not in KNOBS[knob].values:
                raise InvalidInput(f"{knob} cannot be {value!r}", hint=f"one of {KNOBS[knob].values}")
    return chosen


__all__ = ["CONTRACTION_TILE", "KNOBS", "OTHERS", "WINOGRAD_TILES", "Choices", "Chosen", "Knob", "trials"]
