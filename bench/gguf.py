"""python -m bench gguf FILE: processor time of a token and memory of a GGUF model, beside llama.cpp's on one thread.

Both read the same file and the same prompt of tokens, greedily, in alternation, each in a process of its own. Prints
milliseconds of processor time of a token (medians), their ratio, and MB that each process has in memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench import machine
from bench.llama_cpp import CACHED, TOKENS, LlamaCpp


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench gguf", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
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
