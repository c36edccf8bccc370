"""python -m bench recomputation: time and memory of steps of training that compute activations again, natively on one
thread.

Shares are of what a step without recomputation needs besides weights and moments. Sessions run in turns."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from bench import machine
from kit.training_networks import deep, transformer
from pyruntime import OutOfMemory, SessionOptions, TrainingSession

SHARES = (1.0, 0.7, 0.5, 0.3)
Feeds = dict[str, np.ndarray]


def images() -> Feeds:
    rng = np.random.default_rng(0)
    return {"image": rng.normal(size=(16, 1, 64, 64)).astype(np.float32), "target": rng.integers(0, 10, 16)}


def tokens() -> Feeds:
    ids = np.random.default_rng(0).integers(0, 50, (8, 128))
    return {"ids": ids, "target": np.roll(ids, 1, 1)}


NETS: dict[str, tuple[Callable[[], bytes], Callable[[], Feeds]]] = {
    "cnn": (lambda: deep(24, 8, 64), images),
    "transformer": (lambda: transformer(width=64, blocks=8), tokens),
}


@dataclass(slots=True)
class Measured:
    """A session, by its share. times: processor time of steps, in ms"""

    share: float
    session: TrainingSession
    times: list[float] = field(default_factory=list)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench recomputation", description=__doc__)
    parser.add_argument("nets", nargs="*", help=f"default: {' '.join(NETS)}")
    parser.add_argument("--rounds", type=int, default=7, help="steps of each session (default 7)")
    args = parser.parse_args(argv)
    for name in args.nets or NETS:
        print("\n".join(report(name, args.rounds)))
    print(f"{machine.processor()}, load {machine.load()}, {machine.commit()}")
    return 0


def report(name: str, rounds: int) -> list[str]:
    make, feeds_of = NETS[name]
    model, feeds = make(), feeds_of()
    plain = opened(model, feeds, None)
    before = plain.memory()
    lines, found = [], [Measured(0.0, plain)]
    for share in SHARES:
        try:
            limit = before.weights + int(share * before.peak)
            found.append(Measured(share, opened(model, feeds, limit)))
        except OutOfMemory as error:
            lines.append(f"  {share:5.0%}: {error.message}; {error.hint}")
    for _ in range(rounds):
        for one in found:
            start = process_time()
            one.session.step(feeds)
            one.times.append(1000 * (process_time() - start))
    whole = median(found[0].times)
    for one in found:
        memory, time = one.session.memory(), median(one.times)
        what = f"{one.share:5.0%}" if one.share else " free"
        lines.append(
            f"  {what}: peak {memory.peak / 1e6:7.2f} MB ({memory.peak / before.peak:4.0%}) besides"
            f" {memory.weights / 1e6:.2f} MB of weights and moments, {time:7.1f} ms a step ({time / whole:.2f} x)"
        )
        one.session.release()
    return [f"{name}, medians of {rounds} steps", *lines]


def opened(model: bytes, feeds: Any, memory: int | None) -> TrainingSession:
    """A session that has made a step."""
    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = TrainingSession(
        model, loss={"cross_entropy": "logits", "axis": -1}, optimizer="adam", memory=memory, sess_options=options
    )
    session.step(feeds)
    return session
