"""python -m bench generate: TextGenerator natively: a second turn of a chat, and a draft model.

The decoder is llama_mini with random weights. Prints the milliseconds until the first token of a prompt, of the next
turn with the cache of the first and without it, their quotient, tokens a second, and MB of the caches. For drafts the
model checks its own form of 4 bits; the tokens must be those of the plain text.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from bench import machine
from kit import zoo
from pyruntime import TextGenerator, quantize

MODEL = "llama_mini"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench generate", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="repetitions (default 7)")
    parser.add_argument("--prompt", type=int, default=400, help="tokens of the first turn (default 400)")
    args = parser.parse_args(argv)
    path = zoo.materialize(MODEL)
    rng = np.random.default_rng(0)
    first, more = rng.integers(0, 4096, args.prompt).tolist(), rng.integers(0, 4096, 20).tolist()
    writer = TextGenerator(path)
    writer.generate(first, max_tokens=4)  # compiles
    times: dict[str, list[float]] = {"first turn": [], "second turn": [], "the same, cold": []}
    for _ in range(args.rounds):
        writer.reset()
        begun = writer.generate(first, max_tokens=32)
        chat = [*first, *begun.tokens, *more]
        warm = writer.generate(chat, max_tokens=8)
        writer.reset()
        cold = writer.generate(chat, max_tokens=8)
        assert warm.tokens == cold.tokens
        for name, out in zip(times, (begun, warm, cold), strict=True):
            times[name].append(1e3 * out.first)
    print(f"{machine.processor()}; medians of {args.rounds}, a prompt of {args.prompt} tokens")
    for name, found in times.items():
        print(f"{name:16}{median(found):9.1f} ms until the first token")
    quotient = median(times["second turn"]) / median(times["the same, cold"])
    speed = len(begun.tokens) / (begun.seconds - begun.first)
    print(f"second turn over cold {quotient:.3f}; {speed:.0f} tokens/s")
    return (0 if quotient <= 0.3 else 1) | _draft(path, first)


def _draft(path: Path, prompt: list[int]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.onnx")
        quantize(path, 4).save(small)
        plain = TextGenerator(path).generate(prompt, max_tokens=48)
        found = TextGenerator(path, draft=small).generate(prompt, max_tokens=48)
    same = found.tokens == plain.tokens
    told = "the same" if same else "ANOTHER"
    print(f"draft of 4 bits: {found.accepted} of {found.drafted} tokens accepted, {told} text")
    return 0 if same else 1
