"""python -m bench accuracy: differences between our results and onnxruntime's without optimisation, natively.

Prints the largest difference of an output, as a share of its largest value, beside the allowed one. onnxruntime
computes QDQ models in floats between codes, so a share of 0 means that all codes are equal.
"""

from __future__ import annotations

import argparse

import numpy as np

from bench import models


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench accuracy", description=__doc__)
    parser.add_argument("models", nargs="*", help="default: zoo and field")
    args = parser.parse_args(argv)
    known = [name for name in models.everything() if name != models.SILERO and name not in models.CHAOTIC]
    wrong = 0
    print(f"{'model':28}{'error':>10}{'allowed':>10}")
    for name in args.models or known:
        found, allowed = error(name), models.tolerance(name)
        wrong += found > allowed
        print(f"{name:28}{found:10.1e}{allowed:10.1e}{' !' * (found > allowed)}", flush=True)
    return int(wrong > 0)


def error(name: str) -> float:
    """Return the largest difference of all outputs."""
    from pyruntime import InferenceSession

    outputs = InferenceSession(str(models.path(name))).run(None, models.feeds(name))
    return max(_error(ours, theirs) for ours, theirs in zip(outputs, models.results(name).values(), strict=True))


def _error(ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.shape != theirs.shape:
        return float("inf")
    difference = np.abs(ours.astype(np.float64) - theirs).max(initial=0)
    return float(difference / (np.abs(theirs.astype(np.float64)).max(initial=0) or 1))
