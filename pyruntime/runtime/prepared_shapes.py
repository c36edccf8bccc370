"""Shapes of inputs for `session.prepare`, from the sizes of dims that the caller names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.errors import InvalidInput, shown_names
from pyruntime.runtime.safetensors import are_counts


@dataclass(eq=False, slots=True)
class PreparedInput:
    """dims: as the model declares them, None for any rank; is_tensor: of a known type; is_needed: by each run"""

    name: str
    dims: Sequence[int | str | None] | None
    is_tensor: bool
    is_needed: bool


def prepared_shapes(
    inputs: list[PreparedInput], dims: Mapping[str, Any], quote: Callable[[Any], str]
) -> dict[str, list[int]]:
    """The shape of each input that a run needs, and of those that `dims` names. dims: sizes by the name of a dim, or
    lists of all sizes by the name of an input; quote: a value in a message. Errors: InvalidInput"""
    named: list[str] = []
    for x in inputs:
        for dim in [] if x.dims is None else x.dims:
            if isinstance(dim, str) and dim != "" and dim not in named:
                named.append(dim)
    names = [x.name for x in inputs]
    for name, size in dims.items():
        is_known = (
            name in names and are_counts(size) if isinstance(size, list) else name in named and are_counts([size])
        )
        if not is_known:
            hint = f"sizes by name of a dim ({', '.join(shown_names(named))}), or lists by name of an input"
            raise InvalidInput(f'dims cannot have "{name}": {quote(size)}', hint=hint)
    found: dict[str, list[int]] = {}
    for x in inputs:
        sizes: Any = dims.get(x.name)
        own: list[int] | None = sizes if isinstance(sizes, list) else None
        if x.is_needed or own is not None:
            declared = own if x.dims is None else x.dims
            if declared is None or not x.is_tensor:
                text = f'input "{x.name}" is no tensor of a known type and rank, so its memory cannot be prepared'
                raise InvalidInput(text)
            found[x.name] = _shape(x.name, declared, dims, own)
    return found


def _shape(
    name: str, declared: Sequence[int | str | None], dims: Mapping[str, Any], own: Sequence[int] | None
) -> list[int]:
    """The shape of an input. own: sizes of all its dims, if the caller gave them. Errors: InvalidInput for a dim
    without a size, and for sizes that do not fit."""
    if own is not None and len(own) != len(declared):
        text = f'dims of input "{name}" are {len(own)} sizes, it has rank {len(declared)}'
        raise InvalidInput(text, hint="a size for each dim")
    found: list[int] = []
    for axis, dim in enumerate(declared):
        size: Any = dim
        if own is not None:
            size = own[axis]
        elif isinstance(dim, str):
            size = dims.get(dim)
        if size is None:
            label = f'"{dim}"' if isinstance(dim, str) and dim != "" else "no name"
            hint = f'dims: {{ "{name}": [a size for each dim] }}, or a size by the name of the dim'
            raise InvalidInput(f'axis {axis} of input "{name}" has no size, its dim is {label}', hint=hint)
        if isinstance(dim, int) and dim != size:
            raise InvalidInput(f'axis {axis} of input "{name}" cannot have the size {size}', hint=f"{dim}")
        found.append(size)
    return found
