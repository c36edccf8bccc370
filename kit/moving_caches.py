"""Attention over KV caches whose rows move in each step: a sliding window drops the oldest row, and beam search copies
the rows of the texts that it continues."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kit.small_models import model
from kit.static_caches import FLOAT, INT, Graph

WINDOW = 32
HEADS, SIZE = 2, 8
Feeds = dict[str, np.ndarray]


class Case(NamedTuple):
    """What moves: "window" or "beams"; first: before new rows are appended to the past. Otherwise attention reads all
    rows, and what is returned has moved."""

    what: str
    first: bool
    items: int

    def model(self) -> bytes:
        g = Graph()
        for part in "kv":
            past, new, present = f"past_{part}", f"new_{part}", f"present_{part}"
            if self.what == "window" and self.first:
                last = g("Slice", past, [1 - WINDOW], [np.iinfo(np.int64).max], [2])
                g("Concat", last, new, to=present, axis=2)
            elif self.what == "window":
                g("Concat", past, new, to=f"all_{part}", axis=2)
                g("Slice", f"all_{part}", [-WINDOW], [np.iinfo(np.int64).max], [2], to=present)
            elif self.first:
                g("Concat", g("Gather", past, "beam", axis=0), new, to=present, axis=2)
            else:
                g("Concat", past, new, to=f"all_{part}", axis=2)
                g("Gather", f"all_{part}", "beam", axis=0, to=present)
        keys, values = (f"{'present' if self.first else 'all'}_{part}" for part in "kv")
        scores = g("MatMul", "q", g("Transpose", keys, perm=[0, 1, 3, 2]))
        g("MatMul", g("Softmax", scores, axis=-1), values, to="y")
        rows, past = ["b", HEADS, "s", SIZE], ["b", HEADS, "p", SIZE]
        inputs = [(name, FLOAT, rows) for name in ("q", "new_k", "new_v")]
        inputs += [(f"past_{part}", FLOAT, past) for part in "kv"]
        inputs += [("beam", INT, ["b"])] if self.what == "beams" else []
        outputs = [("y", FLOAT, None), *[(f"present_{part}", FLOAT, ["b", HEADS, "n", SIZE]) for part in "kv"]]
        made: bytes = model(g.nodes, inputs, outputs, g.constants).SerializeToString()
        return made

    def steps(self, count: int) -> list[Feeds]:
        """The feeds of tokens, those of the first with pasts of fewer rows than the window."""
        random = np.random.default_rng(0)

        def rows(n: int) -> np.ndarray:
            return random.standard_normal((self.items, HEADS, n, SIZE)).astype(np.float32)

        found = []
        for n in range(count):
            feeds = {name: rows(1) for name in ("q", "new_k", "new_v")}
            feeds |= {f"past_{part}": rows(WINDOW - 4) for part in "kv"} if n == 0 else {}
            feeds |= {"beam": random.integers(0, self.items, self.items)} if self.what == "beams" else {}
            found.append(feeds)
        return found


CASES = [Case(what, first, items) for what in ("window", "beams") for first in (False, True) for items in (1, 3)]
CASES.remove(Case("beams", False, 1))
CASES.remove(Case("beams", True, 1))
