"""What a checkpoint says besides its tensors: the numbers of steps, and the optimiser.
Twin of web/page/training/checkpoint.js."""

from __future__ import annotations

from collections.abc import Mapping

from pyruntime.errors import InvalidInput
from pyruntime.runtime.step_numbers import LEAST_SCALE, MOST_SCALE, StepNumbers
from pyruntime.training.graph.recipe import Recipe

FORMAT = "pyruntime-training/1"
COUNTS = ("step", "batch", "waiting", "good_batches")  # numbers that a checkpoint keeps, beside the weights


def metadata_of(numbers: StepNumbers, recipe: Recipe) -> dict[str, str]:
    counts = {key: str(getattr(numbers, key)) for key in (*COUNTS, "loss_scale")}
    return {"format": FORMAT, **counts, "optimizer": recipe.optimizer, "seed": str(recipe.seed)}


def counts_of(metadata: Mapping[str, str], numbers: StepNumbers, recipe: Recipe) -> dict[str, float]:
    """The attributes of `numbers` that a checkpoint sets. Errors: InvalidInput for another optimiser, or no numbers"""
    counts: dict[str, float] = {key: _count(metadata, key) for key in COUNTS}
    if numbers.is_dynamic and "loss_scale" in metadata:
        counts["loss_scale"] = _scale(metadata["loss_scale"])
    optimizer = metadata.get("optimizer")
    if metadata.get("format") == FORMAT and optimizer != recipe.optimizer:
        raise InvalidInput(f"the checkpoint is of optimizer {optimizer}, the session has {recipe.optimizer}")
    return counts


def _scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not LEAST_SCALE <= scale <= MOST_SCALE:
        raise InvalidInput(f'the checkpoint says loss_scale "{text}"', hint="it is damaged")
    return scale


def _count(metadata: Mapping[str, str], key: str) -> int:
    text = metadata.get(key, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput(f'the checkpoint says {key} "{text}"', hint="a number is expected")
    return int(text)
