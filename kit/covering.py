"""Few combinations that contain every pair of values of several kinds: a covering array of strength two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product

Axes = Mapping[str, Sequence[str]]
Item = tuple[str, str]  # a kind and one of its values
Fits = Callable[[str, str], bool]


def covering(
    axes: Axes, fits: Fits = lambda one, other: True, more: Sequence[Sequence[str]] = ()
) -> list[dict[str, str]]:
    """Combinations of a value of each kind that contain each pair of values that fit together, and no others.

    more: groups of kinds whose values shall meet in all ways. Greedy, with about as many rows as allpairspy, which
    leaves out pairs where some do not fit. Errors: ValueError for a pair that no combination contains"""
    left, found = wanted(axes, fits, more), []
    while left:
        start = min(left, key=lambda group: (-len(group), sorted(group)))
        row = _completed(dict(sorted(start)), axes, fits, left)
        if row is None:
            raise ValueError(f"{sorted(start)} fit together, but no combination contains them")
        left = {group for group in left if not group <= row.items()}
        found.append({kind: row[kind] for kind in axes})
    return found


def wanted(axes: Axes, fits: Fits, more: Sequence[Sequence[str]] = ()) -> set[frozenset[Item]]:
    """The pairs, and the larger groups, whose values fit together."""
    items = {kind: [(kind, value) for value in values] for kind, values in axes.items()}
    kinds = [*combinations(axes, 2), *more]
    every = (group for names in kinds for group in product(*(items[name] for name in names)))
    return {frozenset(group) for group in every if all(fits(a[1], b[1]) for a, b in combinations(group, 2))}


def _completed(row: dict[str, str], axes: Axes, fits: Fits, left: set[frozenset[Item]]) -> dict[str, str] | None:
    """A combination with these values, and of the other kinds first those values that are in most groups left."""
    kind = next((kind for kind in axes if kind not in row), None)
    if kind is None:
        return row

    def gain(value: str) -> int:
        return sum(frozenset(((kind, value), item)) in left for item in row.items())

    fitting = [value for value in axes[kind] if all(fits(value, other) for other in row.values())]
    rows = (_completed({**row, kind: value}, axes, fits, left) for value in sorted(fitting, key=gain, reverse=True))
    return next((found for found in rows if found), None)
