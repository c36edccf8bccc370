"""Names of what a training session adds to a model's graph, besides those of pyruntime/runtime/training_steps.py."""

from pyruntime.frontend.registry import INTERNAL

DOMAIN = INTERNAL  # of its operators
COPY = "training/"  # before names of values that are computed for training alone
