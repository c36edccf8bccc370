"""Feeds that do not fit the model, and feeds that do in an unusual memory layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz import suite
from fuzz.case import Case
from fuzz.draw import Draw
from fuzz.models import small


class Odd:
    """An object that is not an array."""


# Replacements of a fed array that keep its values: the answer must stay the same.
LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "reversed twice": lambda x: x[::-1][::-1] if x.ndim else x,
    "every second of twice as many": lambda x: np.repeat(x, 2, 0)[::2] if x.ndim else x,
    "Fortran order": lambda x: np.array(x, order="F"),  # asfortranarray would make a scalar a vector
    "byte-swapped": lambda x: x.astype(x.dtype.newbyteorder(">")) if x.dtype.kind in "iuf" else x,
    "read-only": lambda x: _read_only(x.copy()),
    "a view of bytes": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape)
    if x.dtype.kind in "iuf" else x,
    "a list": lambda x: x.tolist(),
    "a masked array": np.ma.masked_array,
}  # fmt: skip
WRONG: dict[str, Callable[[np.ndarray], Any]] = {
    "None": lambda x: None,
    "text": lambda x: "abc",
    "bytes": lambda x: b"abc",
    "a number": lambda x: 1.5,
    "a huge number": lambda x: 10**400,
    "an object": lambda x: Odd(),
    "an empty list": lambda x: [],
    "a ragged list": lambda x: [[1, 2], [3]],
    "a list of None": lambda x: [None],
    "nested deeply": lambda x: _nested(200),
    "a dict": lambda x: {"a": x},
    "a set": lambda x: {1, 2},
    "a tuple of arrays": lambda x: (x, x),
    "a list of arrays": lambda x: [x, x],
    "one rank more": lambda x: x[None],
    "one rank less": lambda x: x.reshape(-1)[0] if x.size else x,
    "empty": lambda x: x[:0] if x.ndim else x,
    "one longer": lambda x: np.concatenate([x, x[:1]]) if x.ndim else x,
    "a dim of zero bytes, huge": lambda x: np.zeros((2**62, 0), x.dtype),
    "huge by strides": lambda x: np.broadcast_to(np.zeros((), np.float32), (1 << 20, 1 << 20)),
    # Ones, since a step of 0 would make an endless loop.
    "rank 64": lambda x: np.ones((1,) * 64, x.dtype),
    "complex": lambda x: np.zeros(x.shape, np.complex64),
    "longdouble": lambda x: np.zeros(x.shape, np.longdouble),
    "dates": lambda x: np.zeros(x.shape, "datetime64[s]"),
    "spans of time": lambda x: np.zeros(x.shape, "timedelta64[s]"),
    "records": lambda x: np.zeros(x.shape, [("a", "f4"), ("b", "i4")]),
    "strings": lambda x: np.full(x.shape, "a"),
    "bytes strings": lambda x: np.full(x.shape, b"\xff"),
    "objects": lambda x: np.full(x.shape, Odd(), object),
    "objects None": lambda x: np.full(x.shape, None, object),
    "void": lambda x: np.zeros(x.shape, "V7"),
    "halves": lambda x: np.ones(x.shape, np.float16),
    "doubles": lambda x: np.ones(x.shape, np.float64),
    "bytes numbers": lambda x: np.ones(x.shape, np.uint8),
    "bools": lambda x: np.ones(x.shape, bool),
    "a type": lambda x: float,
    "a function": lambda x: print,
    "a memoryview": lambda x: memoryview(bytes(8)),
    "a range": lambda x: range(3),
    "a generator": lambda x: (i for i in range(3)),
}
WHOLE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no feeds": lambda f: {},
    "None for feeds": lambda f: None,
    "a list of feeds": lambda f: list(f.values()),
    "pairs": lambda f: list(f.items()),
    "text for feeds": lambda f: "x",
    "one name more": lambda f: {**f, "no such input": np.zeros(1)},
    "a number for a name": lambda f: {**f, 1: np.zeros(1)},
    "None for a name": lambda f: {**f, None: np.zeros(1)},
    "a tuple for a name": lambda f: {**f, ("a",): np.zeros(1)},
    "names in capitals": lambda f: {k.upper() + "_": v for k, v in f.items()},
}


def _read_only(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


def _nested(depth: int) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    return value


def case(draw: Draw) -> Case | None:
    """A small model with a bad feed, then a good one: the session must remain usable."""
    official = suite.load()[draw.pick(small())]
    good = dict(official.data[0][0])
    arrays = [k for k, v in good.items() if isinstance(v, np.ndarray)]
    if not arrays:
        return None
    table = draw.pick([WRONG, WRONG, LAYOUTS, WHOLE])
    how = draw.pick(sorted(table))
    key = draw.pick(arrays)
    bad = table[how](good) if table is WHOLE else {**good, key: table[how](good[key])}
    judged = table is LAYOUTS and how != "a list"
    return Case("feeds", official.model, (bad, good), judged, f"{official.name}, {key}: {how}")
