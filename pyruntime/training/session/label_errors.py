"""Errors for labels that are no class, with their places in the batch."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyruntime.errors import ExecutionError
from pyruntime.runtime.training_steps import label_place


@contextmanager
def placed_labels(targets: Mapping[str, str], feeds: Mapping[str, Any], arrays: Any) -> Iterator[None]:
    """targets: element types of the feeds of the loss; arrays: what reads feeds"""
    try:
        yield
    except ExecutionError as e:
        for name, dtype in targets.items():
            if dtype == "int64" and name in feeds:
                labels = arrays.stored(name, feeds[name])
                found = label_place(e.node, e.message, name, [*labels.shape], array("q", bytes(labels.data)).tolist())
                e.hint = e.hint or found
        raise
