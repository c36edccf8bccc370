"""python -m bench gguf FILE: processor time of a token and memory of a GGUF model, beside llama.cpp's on one thread.

Both read the same file and the same prompt of tokens, greedily, in alternation, each in a process of its own. Prints
milliseconds of processor time of a token (medians), their ratio, and MB that each process has in memory.

`--agreement`, in place of FILE: tiny decoders of random weights of each architecture in each type of blocks. Prints the
largest difference of a logit, as a share of the largest logit, from onnxruntime's on the same numbers in float32, which
the package gguf dequantises; of F32 from transformers' on PyTorch (kit/gguf_logits.npz).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench import machine
from bench.llama_cpp import CACHED, TOKENS, LlamaCpp


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench gguf", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--agreement", action="store_true", help="a table of architectures and types of blocks")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.agreement:
        return agreement()
    if args.file is None:
        parser.error("give a GGUF file, or --agreement")
    if args.child:
        return serve(args.file)
    command = [sys.executable, "-m", "bench", "gguf", str(args.file), "--child"]
    ours = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    theirs = LlamaCpp(str(args.file), 1)
    times: list[tuple[float, float]] = []
    try:
        _turn(ours)
        times = [(_turn(ours), theirs(1)) for _ in range(args.rounds)]
        memory = [_resident(ours.pid), _resident(theirs.process)]
    finally:
        ours.kill()
        ours.wait()
        theirs.close()
    a, b = (1e3 * median(column) for column in zip(*times, strict=True))
    print(f"{machine.processor()}; one thread, medians of {args.rounds} turns of {TOKENS} tokens")
    print(f"ours {a:.1f} ms of processor time a token, llama.cpp {b:.1f}, ratio {a / b:.2f}")
    print(f"ours {memory[0]:.0f} MB in memory, llama.cpp {memory[1]:.0f} (file: {args.file.stat().st_size / 1e6:.0f})")
    return 0


def _turn(child: subprocess.Popen[str]) -> float:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    return float(child.stdout.readline())


def _resident(process: int) -> float:
    """MB, with the pages of mapped files."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def serve(file: Path) -> int:
    """Answer each line of the input with seconds of processor time of a token."""
    from pyruntime import SessionOptions, TextGenerator

    options = SessionOptions()
    options.intra_op_num_threads = 1
    writer = TextGenerator(file, options=options, stop_tokens=[])
    prompt = list(range(1, CACHED + 1))

    def seconds(tokens: int) -> float:
        start = time.process_time()
        writer.generate(prompt, max_tokens=tokens)
        return time.process_time() - start

    for _ in sys.stdin:
        one = seconds(1)
        print((seconds(1 + TOKENS) - one) / TOKENS, flush=True)
    return 0


TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]  # those that the package gguf can write


def agreement() -> int:
    from kit.gguf_models import ARCHITECTURES

    print(f"{'':10}" + "".join(f"{kind:>10}" for kind in TYPES))
    worst = 0.0
    with TemporaryDirectory() as folder:
        for architecture in ARCHITECTURES:
            cells = [_difference(architecture, kind, Path(folder)) for kind in TYPES]
            worst = max(worst, *cells)
            print(f"{architecture:10}" + "".join(f"{cell:10.1e}" for cell in cells), flush=True)
    print(f"largest difference {worst:.1e}")
    return int(worst > 1e-4)


def _difference(architecture: str, kind: str, folder: Path) -> float:
    import gguf
    import onnxruntime

    from kit.gguf_logits import OUT, ROWS
    from kit.gguf_models import write
    from pyruntime import InferenceSession
    from pyruntime.cli import main as command

    path, plain, converted = folder / "codes.gguf", folder / "plain.gguf", folder / "plain.onnx"
    write(path, architecture, gguf.GGMLQuantizationType[kind])
    ours = _logits(InferenceSession(path))
    if kind == "F32":
        return _apart(ours[-ROWS:], np.load(OUT)[architecture])
    numbers = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    write(plain, architecture, numbers=numbers)
    with redirect_stdout(StringIO()):
        command(["convert", str(plain), str(converted)])
    return _apart(ours, _logits(onnxruntime.InferenceSession(converted, providers=["CPUExecutionProvider"])))


def _apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def _logits(session: Any) -> np.ndarray:
    """Of all tokens, read in one run."""
    from kit.gguf_models import TOKENS as TEXT

    places = np.arange(len(TEXT))[None]
    feeds = {"input_ids": np.array([TEXT]), "attention_mask": np.ones_like(places), "position_ids": places}
    caches = {
        i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32) for i in session.get_inputs() if "past" in i.name
    }
    return np.asarray(session.run(["logits"], {**feeds, **caches})[0][0])
