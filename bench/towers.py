"""python -m bench towers: one output of a model like CLIP, which has two towers, against a model of one tower alone.

For each session and set of outputs: the feeds that a run needs, CPU milliseconds of creation (without the cache of
Programs) and of a run on one thread, and MB of its memory: weights, and the peak of runs besides. The sessions run in
turns.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

from bench import machine
from kit.towers import Sizes, feeds, write
from pyruntime import InferenceSession, SessionOptions

FOLDER = Path("build/bench/towers")
SMALL = Sizes(layers=3, image_width=192, text_width=128, embedding=128, vocabulary=4096)
IMAGE, TEXT = "image_embeds", "text_embeds"


class Row(NamedTuple):
    """session: of this package or of onnxruntime; created: seconds; outputs: None for all"""

    title: str
    session: Any
    created: float
    outputs: list[str] | None


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench towers", description=__doc__)
    parser.add_argument("--small", action="store_true", help="3 narrow layers instead of the sizes of CLIP ViT-B/32")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each session (default 15)")
    args = parser.parse_args(argv)
    sizes = SMALL if args.small else Sizes()
    paths = {
        "both": write(FOLDER / "both.onnx", sizes),
        "image": write(FOLDER / "image.onnx", sizes, text=False),
        "text": write(FOLDER / "text.onnx", sizes, image=False),
    }
    given = feeds(sizes)
    rows = [*ours(paths), *theirs(paths["both"])]
    print(f"{machine.processor()}; CPU times, medians of {args.rounds}")
    print(f"{'':46}{'needs':28}{'create ms':>11}{'run ms':>9}{'weights MB':>12}{'peak MB':>9}")
    for row, seconds in zip(rows, in_turns(rows, given, args.rounds), strict=True):
        print(f"{row.title:46}{', '.join(needed(row)):28}{1e3 * row.created:11.0f}{1e3 * seconds:9.1f}{memory(row)}")
    return check(rows, given)


def ours(paths: dict[str, Path]) -> list[Row]:
    rows = []
    whole, created = opened(paths["both"])
    for title, outputs in (("all", None), (IMAGE, [IMAGE]), (TEXT, [TEXT])):
        rows.append(Row(f"two towers, run for {title}", whole, created, outputs))
    for output in (IMAGE, TEXT):
        rows.append(Row(f'two towers, outputs=["{output}"]', *opened(paths["both"], [output]), None))
    for tower in ("image", "text"):
        rows.append(Row(f"a model of the {tower} tower", *opened(paths[tower]), None))
    return rows


def opened(path: Path, outputs: list[str] | None = None) -> tuple[InferenceSession, float]:
    options = SessionOptions(outputs=outputs)
    options.add_session_config_entry("session.disable_program_cache", "1")
    start = time.process_time()
    session = InferenceSession(path, options)
    return session, time.process_time() - start


def theirs(path: Path) -> list[Row]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    start = time.process_time()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    created = time.process_time() - start
    sets = (("all", None), (IMAGE, [IMAGE]))
    return [Row(f"onnxruntime, two towers, run for {title}", session, created, outputs) for title, outputs in sets]


def needed(row: Row) -> list[str]:
    names = [i.name for i in row.session.get_inputs()]
    if row.outputs is None or not isinstance(row.session, InferenceSession):
        return names
    return row.session._native.feeds.needed(row.outputs)


def run(row: Row, given: dict[str, np.ndarray]) -> Any:
    return row.session.run(row.outputs, {name: given[name] for name in needed(row)})


def in_turns(rows: list[Row], given: dict[str, np.ndarray], rounds: int) -> list[float]:
    """Seconds of a run of each row."""
    times: list[list[float]] = [[] for _ in rows]
    for _ in range(rounds + 1):
        for row, taken in zip(rows, times, strict=True):
            start = time.process_time()
            run(row, given)
            taken.append(time.process_time() - start)
    return [median(taken[1:]) for taken in times]


def memory(row: Row) -> str:
    if not isinstance(row.session, InferenceSession):
        return ""
    report = row.session.memory()
    return f"{report.weights / 1e6:12.1f}{report.peak / 1e6:9.1f}"


def check(rows: list[Row], given: dict[str, np.ndarray]) -> int:
    """1 if an embedding differs from that of the whole run. Those of separate models have other weights."""
    whole = dict(zip([o.name for o in rows[0].session.get_outputs()], run(rows[0], given), strict=True))
    wrong = [r.title for r in rows[:5] if not np.allclose(run(r, given)[0], whole[output_of(r)], atol=1e-5)]
    print(f"results differ: {', '.join(wrong)}" if wrong else "results agree")
    return int(bool(wrong))


def output_of(row: Row) -> str:
    return (row.outputs or [o.name for o in row.session.get_outputs()])[0]
