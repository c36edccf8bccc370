"""The shapes of values that a loop stacks."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.errors import ExecutionError


def stacked_dims(shapes: Sequence[Sequence[int]], rank: int, node: str) -> list[int]:
    """The dims of a stack along a new first axis. shapes: of the value in each iteration; without iterations, the dims
    are 0; rank: of the stack. Errors: ExecutionError if the shapes differ."""
    if len(shapes) == 0:
        return [0] * rank
    first = shapes[0]
    for n, shape in enumerate(shapes):
        if shape != first:
            text = f"values of shapes [{_text(first)}] and [{_text(shape)}] (iteration {n}) cannot be stacked"
            raise ExecutionError(text, node=node)
    return [len(shapes), *first]


def _text(shape: Sequence[int]) -> str:
    return ", ".join([str(n) for n in shape])
