"""python -m bench: side by side with onnxruntime-web and jax-js, in one page of a real Chromium."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

COMMANDS = {
    "compile": "compile and boot times in the browser, from a cold profile",
    "start": "the first visit of a new browser profile beside onnxruntime-web's, its phases and bytes, and the second",
    "ready": "from create to the first result in a new page whose files are cached, beside onnxruntime-web",
    "memory": "peak of each model against the largest set of tensors alive at once",
    "load": "memory for loading, over the weights, 20 MB to 1 GB, natively and in Chromium, beside onnxruntime's",
    "llm": "tokens a second of decoders of random weights in four types, natively and in Chromium, beside onnxruntime",
    "training": "steps a second of training in one page, beside TensorFlow.js and jax-js, and their memory",
    "disco": "a task of disco, a federated trainer, in a page: accuracy, steps a second, bytes beside its own trainer",
    "learning": "22 networks that PyTorch exports in four ways: losses and results beside its own, natively",
    "smaller": "three nets quantised, pruned and distilled: bytes, time and accuracy before and after, natively",
    "recomputation": "time and memory of steps of training within 100, 70, 50 and 30 % of what they need, natively",
    "native": "processor time on the desktop beside onnxruntime's CPU provider, with and without machine code",
    "loops": "recurrences as Loop and Scan: each step by the executor, as compiled, in onnxruntime; natively",
    "loop_training": "gradients of recurrences: time of a step, and memory, by the number of steps; natively",
    "overhead": "the time of a run besides its kernels",
    "batcher": "requests a second to MiniLM through a Batcher, beside single runs",
    "serving": "the server of models under load beside hostile requests, and beside onnxruntime in the same server",
    "processes": "a model of 500 MB in eight processes beside onnxruntime: memory, time to the first result",
    "engines": "a model in Ray, Dask, Spark, Beam and Gunicorn beside onnxruntime in them: rows a second, memory",
    "concurrency": "runs a second of one session that 1, 2 and 4 threads use at once, natively",
    "instructions": "WebAssembly instructions of a run of each model: the same under any load",
    "profile": "time, GFLOP/s and GB/s of each kernel of a model; a Chrome trace",
    "limits": "kernels of the zoo and the field that are below half of the machine's peak and bandwidth",
    "gpu": "GFLOP/s and GB/s of the WebGPU kernels on the native adapter",
    "dispatches": "WebGPU work of a run: dispatches and bytes, beside onnxruntime-web's",
    "soak": "growth of memory and of latency, natively and in Chromium, over a long time",
    "providers": 'sessions that name the GPU, or "auto", beside WebAssembly alone',
    "exported": "exported Programs on the GPU beside sessions with Python: code, and time until a session is ready",
    "workers": "three models at once in one worker and in three, and the memory of four tabs that share one",
    "visits": "the first visit against the second, on the GPU",
    "operators": "operators whose algorithm decides (NMS, DFT, RoiAlign, …) beside onnxruntime, natively on one thread",
    "loads": "two-thread sessions in fresh pages of Firefox: whether each one ends",
    "accuracy": "largest error of each model against onnxruntime without optimisation, natively",
    "rows": "products of 2 to 16 rows: share of the machine's bounds, beside onnxruntime",
    "bits": "models with weights of 4, 8 and 16 bits: size, error, speed",
    "formats": "texts bound to the schemas of JSON Schema's test suite: how many fit, and the time of a mask",
    "lora": "SmolLM2 learns a text with LoRA in the page Tune: seconds a step, memory, loss, texts before and after",
    "gguf": "processor time of a token and memory of a GGUF file beside llama.cpp; agreement of each type of blocks",
    "chat": "the chat of the demo site: phases to the first word, and ten answers beside transformers'",
    "generate": "a second turn of a chat, and a draft model",
    "site": "what a visitor of the demo site waits for and downloads, page by page",
    "towers": "one output of a model with two towers, against a model of one tower: time, memory, required feeds",
    "tune": "the schedules that tuning chooses, the gain of a run, and the time of tuning",
    "subnormals": "nets with subnormal numbers beside the same with zeros, natively and in Chromium",
    "chart": "an SVG of the newest results",
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog="\n".join(f"python -m bench {name:12} {text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("models", nargs="*", help="default: the zoo and Silero; with --webgpu nine of them")
    made.add_argument("--threads", type=int, nargs="+", help="default 1 2; with --webgpu 1")
    made.add_argument("--field", action="store_true", help="also the field (kit/field): some eighty more models")
    made.add_argument("--webgpu", action="store_true", help="against onnxruntime-web's /webgpu, on the same adapter")
    made.add_argument("--worker", action="store_true", help="both in their workers (env.wasm.proxy), not in the page")
    made.add_argument("--no-jax", action="store_true", help="without jax-js")
    made.add_argument(
        "--seconds", type=float, default=6.0, help="longest time of a model's turns (default 6; at least 3 turns)"
    )
    made.add_argument("--rounds", type=int, default=40, help="most turns of a model (default 40)")
    made.add_argument("--json", type=Path, metavar="OUT", help="write all measurements to this file")
    made.add_argument("--save", action="store_true", help="store the result in bench/history")
    made.add_argument("--compare", action="store_true", help="show regressions; exit 1 if there are any")
    made.add_argument("--all", action="store_true", help="also run compile, memory and overhead")
    return made


def side_by_side(argv: list[str]) -> int:
    from bench import compare, history, models, results

    args = parser().parse_args(argv)
    known = models.everything()
    if unknown := sorted(set(args.models) - set(known)):
        parser().error(f"no model {', '.join(unknown)}; there are {', '.join(known)}")
    options = results.Options(
        names=args.models or (known if args.field else compare.GPU_MODELS if args.webgpu else models.names()),
        threads=args.threads or ([1] if args.webgpu else [1, 2]),
        provider="webgpu" if args.webgpu else "wasm",
        worker=args.worker,
        jax=not (args.no_jax or args.webgpu or args.worker),
        seconds=args.seconds,
        rounds=args.rounds,
    )
    result = compare.run(options)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))
    worse = 0
    if args.compare:
        text, worse = history.compare(result)
        print(text)
    if args.save:
        print(f"kept as {history.save(result)}")
    if args.all:
        for command in ("compile", "memory", "overhead"):
            run(command, [])
    failed = compare.warn(result)
    for line in compare.summary(result):
        print(line)
    return int(bool(worse or failed))


def run(command: str, argv: list[str]) -> int:
    main: Callable[[list[str]], int] = import_module(f"bench.{command}").main
    return main(argv)


if __name__ == "__main__":
    first, rest = sys.argv[1:2], sys.argv[2:]
    sys.exit(run(first[0], rest) if first and first[0] in COMMANDS else side_by_side(sys.argv[1:]))
