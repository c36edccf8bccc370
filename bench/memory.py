"""python -m bench memory: the memory of a run, against the largest set of tensors that are alive at once.

Measures the native runtime, whose plan equals the browser's. `alive` is the largest total size of tensors that are
alive at once; `reach` is how far the arena extends beyond the weights; `holes` is its part that is free between weights
when the first run starts (constants that only start-up needed); `whole` is the ratio with the weights on both sides;
`asked` is the total size of all tensors of a run.
"""

from __future__ import annotations

import argparse

from bench import models
from pyruntime import InferenceSession, SessionFailed

LIMIT = 1.1  # largest acceptable reach / alive


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench memory", description=__doc__)
    parser.add_argument("models", nargs="*", help="default: the zoo and Silero")
    args = parser.parse_args(argv)
    heads = ("weights", "alive", "reach", "ratio", "whole", "holes", "asked", "reuse")
    print("\nMB of 1e6 bytes; ratio = reach / alive, reuse = asked / reach")
    print(f"{'model':{22}}" + "".join(f"{head:>10}" for head in heads))
    over = []
    for name in args.models or models.names():
        ratio = one(name)
        if ratio > LIMIT:
            over.append(name)
    print(f"over {LIMIT}: {', '.join(over) or 'none'}")
    return 0


def one(name: str) -> float:
    """Print the line, and return the ratio."""
    session = InferenceSession(models.path(name))
    holes = _holes(session)
    session.run(None, models.feeds(name))
    stats = session.memory().providers["wasm"]
    reach = stats.top - stats.weights
    ratio = reach / stats.peak
    numbers = [f"{value / 1e6:.2f}" for value in (stats.weights, stats.peak, reach)]
    whole = (stats.weights + reach) / (stats.weights + stats.peak)
    numbers += [f"{ratio:.2f}", f"{whole:.2f}", holes]
    cells = [*numbers, f"{stats.requested / 1e6:.2f}", f"{stats.requested / reach:.1f}"]
    print(f"{name:{22}}" + "".join(f"{cell:>10}" for cell in cells), flush=True)
    return ratio


def _holes(session: InferenceSession) -> str:
    """Return the free MB between weights before the first run; "-" for a model that is not compiled yet."""
    try:
        stats = session.memory().providers["wasm"]
    except SessionFailed:
        return "-"
    return f"{(stats.top - stats.weights) / 1e6:.2f}"
