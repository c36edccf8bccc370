"""Names of what a training session adds to a model's graph."""

import re

from pyruntime.frontend.registry import INTERNAL

DOMAIN = INTERNAL  # of its operators
NUMBERS = "training:numbers"  # the feed with the numbers of a step (pyruntime/runtime/step_numbers.py)
APPLY = "training:apply"  # a feed of 1 or 0 elements: whether the optimiser runs
RESULT = "training:result"  # loss, whether it and all gradients are finite, norm of the gradients
APPLIED = "training:applied"  # the same, of a step with the gradients of several batches
LOSS = "training:loss"  # of an evaluation
COPY = "training/"  # before names of values that are computed for training alone
IDLE = "idle/"  # before names of states that tell which rows of moments are 0; checkpoints do not have them
START = "start/"  # before names of the values that the proximal term holds weights near


def state_of(name: str) -> str:
    """The weight that a value of a checkpoint belongs to, such as that of its optimiser's moments."""
    return re.sub(f"^(optimizer/[a-z]+|gradient|{START[:-1]})/", "", name)
