"""Indices out of range. Kernels report them by a record of 16 bytes: number of a node, extent (int32), index (int64).
Twin of web/run/faults.js."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pyruntime.errors import ExecutionError
from pyruntime.ir.reference import out_of_range

_RECORD = struct.Struct("<iiq")


def raise_fault(record: bytes, checked: Sequence[str], on_gpu: bool = False) -> None:
    """checked: nodes whose indices are checked; their numbers begin at 1. Errors: ExecutionError."""
    node, extent, index = _RECORD.unpack(record)
    error = ExecutionError(out_of_range(index, extent), node=checked[node - 1] if 0 < node <= len(checked) else "")
    error.has_kept_states = on_gpu
    raise error
