"""python -m bench learning FOLDER: networks of PyTorch learn here as there.

FOLDER has what `python -m bench.torch_export FOLDER` wrote. Prints for each network and export the largest difference
of a loss in 50 steps, of the loss and the outputs of a held-out batch, and of what onnxruntime computes from the
exported model; and what a file that cannot be trained as its module warns of, or is refused for. "rounding": PyTorch's
own results in float32 and float64 are as far apart. Exits with 1 for a difference without a warning.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import pyruntime

KINDS = ("dynamo", "script", "dynamo for training", "script for training")
LOSS, OUTPUT = 1e-5, 1e-4  # limits of differences, of the largest value
ROUNDING = 3  # times what PyTorch in float32 differs from PyTorch in float64


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench learning", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="default: all")
    args = parser.parse_args(argv)
    wrong = 0
    for name in args.names or sorted(p.stem for p in args.folder.glob("*.npz")):
        for kind in KINDS:
            wrong += not compared(args.folder, name, kind)
    return int(wrong > 0)


def compared(folder: Path, name: str, kind: str) -> bool:
    """Whether a network learns as in PyTorch, or warns."""
    path = folder / f"{name}.{kind}.onnx"
    with np.load(folder / f"{name}.npz") as data:
        known = {key.removeprefix(f"{kind}/"): data[key] for key in data.files}
    about = pyruntime.InferenceSession(path)
    inputs, output = [i.name for i in about.get_inputs()], about.get_outputs()[0].name
    batches = [feeds(known, n, inputs) for n in range(len(known["losses"]) + 1)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            session = pyruntime.TrainingSession(path, loss=loss_of(str(known["loss"]), output))
        except pyruntime.NotDifferentiable as error:
            print(f"{name:18}{kind:21}refused: {error}", flush=True)
            return True
        losses = [session.step(batch).loss for batch in batches[:-1]]
    held = session.evaluate(batches[-1], [output])
    (folder / "exported.onnx").write_bytes(session.export())  # beside its external data
    other = onnxruntime.InferenceSession(folder / "exported.onnx")
    exported = other.run([output], {i.name: batches[-1][i.name] for i in other.get_inputs()})[0]
    far = distances(known, losses, held["loss"], held[output], exported)
    own = distances(known, *(known[f"exact {key}"] for key in ("losses", "held", "output", "output")))
    limits = (LOSS, LOSS, OUTPUT, OUTPUT)
    is_equal = all(x <= limit for x, limit in zip(far, limits, strict=True))
    own = [own[0], *[max(own[1:])] * 3]  # a held-out loss may be near by chance
    is_rounding = all(x <= max(limit, ROUNDING * y) for x, y, limit in zip(far, own, limits, strict=True))
    texts = [str(w.message).removeprefix("pyruntime: ") for w in told]
    count = sum(int(np.prod(p.shape)) for p in session.parameters())
    numbers = "  ".join(
        f"{label} {x:.0e}" for label, x in zip(("steps", "held", "outputs", "exported"), far, strict=True)
    )
    verdict = "equal" if is_equal else "rounding" if is_rounding else "told" if texts else "WRONG"
    print(f"{name:18}{kind:21}{verdict:9} {numbers}  parameters {count}/{known['count']}", flush=True)
    print("".join(f"    {text}\n" for text in texts), end="")
    return is_equal or is_rounding or bool(texts)


def distances(known: dict[str, Any], losses: Any, held: Any, *outputs: Any) -> list[float]:
    """Of results from PyTorch's."""
    far = [apart(losses, known["losses"]), apart(held, known["held"])]
    return far + [apart(y, known["output"], np.abs(known["output"]).max()) for y in outputs]


def feeds(known: dict[str, Any], n: int, inputs: list[str]) -> dict[str, Any]:
    return {name: known[f"{n}/{k}"] for k, name in enumerate(inputs)} | {"target": known[f"{n}/target"]}


def loss_of(kind: str, output: str) -> dict[str, Any]:
    return {"bce": output, "logits": False} if kind == "bce of probabilities" else {kind: output}


def apart(found: Any, expected: Any, size: Any = None) -> float:
    return float(np.max(np.abs(np.asarray(found) - expected) / (np.abs(expected) if size is None else size)))
