"""Shapes of inputs for `session.prepare`, from the sizes of dims that the caller names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyruntime.errors import InvalidInput


def prepared_shape(
    name: str, shape: Sequence[int | str | None], sizes: Mapping[str, int], own: Sequence[int] | None
) -> list[int]:
    """The shape of an input. shape: as the model declares it; sizes: of dims, by name; own: sizes of all its dims, if
    the caller gave them. Errors: InvalidInput for a dim without a size, and for sizes that do not fit."""
    if own is not None and len(own) != len(shape):
        text = f'dims of input "{name}" are {len(own)} sizes, it has rank {len(shape)}'
        raise InvalidInput(text, hint="a size for each dim")
    found: list[int] = []
    for axis, dim in enumerate(shape):
        size = _size(dim, sizes) if own is None else own[axis]
        if size is None:
            label = f'"{dim}"' if isinstance(dim, str) and dim != "" else "no name"
            hint = f'dims: {{ "{name}": [a size for each dim] }}, or a size by the name of the dim'
            raise InvalidInput(f'axis {axis} of input "{name}" has no size, its dim is {label}', hint=hint)
        if size < 0 or (isinstance(dim, int) and dim != size):
            wanted = f"{dim}" if isinstance(dim, int) else "0 or more"
            raise InvalidInput(f'axis {axis} of input "{name}" cannot have the size {size}', hint=wanted)
        found.append(size)
    return found


def _size(dim: int | str | None, sizes: Mapping[str, int]) -> int | None:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return sizes.get(dim)
    return None
