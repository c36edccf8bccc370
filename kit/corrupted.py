"""Damaged Program files: flipped bits, truncation, and changed header entries or constants of the code with a new
checksum.

python -m kit.corrupted --count 1500: opens and runs them natively and counts failures that are not typed errors;
with --machine-code, Programs that call machine code, which `export` never writes.
"""

from __future__ import annotations

import argparse
import copy
import json
import pickle
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

from kit import zoo
from kit.probes import PROBES
from pyruntime import InferenceSession, InvalidInput, PyRuntimeError, RunOptions, SessionOptions
from pyruntime.errors import InternalError
from pyruntime.program.format import Program
from pyruntime.providers.wasm.code_writer import WasmCodeWriter
from pyruntime.providers.wasm.printer.native_imports import FUNCTIONS

Case = tuple[str, bytes, dict[str, Any]]  # the damage in words, the file, feeds
SECONDS, BYTES = 10, 1 << 30
I32_CONST = 0x41  # WebAssembly's opcode
ODD = [
    *[
        0,
        1,
        -1,
        2,
        3,
        64,
        1000,
        2**31 - 1,
        2**31,
        2**32,
        2**53 - 1,
        10**30,
        1.5,
        None,
        True,
        "",
        "x",
        "wasm",
        [],
        {},
        [[]],
    ],
    *[["+", "s0", 1], ["floordiv", 1, 0], ["select", 0, 0], ["+", ["+", ["+", "s0", 1], 1], 1]],
]


def sources() -> list[tuple[str, bytes, dict[str, Any]]]:
    """Name, file and feeds of small Programs that have every kind of step."""
    out = []
    for name, probe in PROBES.items():
        session = InferenceSession(probe.model)
        try:
            out.append((name, session.export(weights=True), probe.runs[0][0]))
        except InvalidInput:
            continue  # several Programs, or steps that a file cannot store
    for name in ("superres", "lstm_tagger"):
        out.append((name, InferenceSession(zoo.materialize(name)).export(weights=True), zoo.inputs(name)))
    return out


PRODUCTS = """
g (float[N, 40] x) => (float[N, 24] y) <float[40, 24] w> { y = MatMul (x, w) }
g (float[N, 24] x) => (float[N, 24] y) <float[24, 24] w, float[24] b> { h = Gemm (x, w, b)  y = Relu (h) }
g (float[1, 8, H, H] x) => (float[A, B, C, D] y) <float[16, 8, 3, 3] w> { y = Conv <pads = [1, 1, 1, 1]> (x, w) }
g (float[1, 8, H, H] x) => (float[A, B, C, D] y) <float[16, 8, 3, 3] w> { y = Conv <strides = [2, 2]> (x, w) }
g (float[1, 16, H, H] x) => (float[A, B, C, D] y) <float[24, 16, 1, 1] w> { y = Conv (x, w) }
g (float[1, 16, H, H] x) => (float[A, B, C, D] y) <float[16, 1, 3, 3] w> { y = Conv <group = 16> (x, w) }
g (float[1, 32] x) => (float[1, 64] y) <float[32, 64] w> { y = MatMul (x, w) }
g (uint8[N, 64] x) => (int32[N, 32] y) <uint8[64, 32] w> { y = MatMulInteger (x, w) }
"""
SIZES = {"N": 13, "H": 11}


def native_sources() -> list[tuple[str, bytes, dict[str, Any]]]:
    """The same of products and convolutions whose code calls machine code, as a hostile author might write it."""
    rng, out = np.random.default_rng(0), []
    real = WasmCodeWriter.__init__
    with patch.object(
        WasmCodeWriter, "__init__", lambda *args, **how: real(*args, **{**how, "native": tuple(FUNCTIONS)})
    ):
        for text in PRODUCTS.strip().splitlines():
            model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
            for weight in model.graph.value_info:
                values = _numbers(weight, rng)
                model.graph.initializer.append(onnx.numpy_helper.from_array(values, weight.name))
            del model.graph.value_info[:]
            program = InferenceSession(model.SerializeToString()).export(weights=True, relaxed=True)
            out.append((text, program, {"x": _numbers(model.graph.input[0], rng)}))
    return out


def _numbers(value: onnx.ValueInfoProto, rng: np.random.Generator) -> np.ndarray:
    """Random numbers from 0 to 8 for a declared tensor."""
    tensor = value.type.tensor_type
    shape = [d.dim_value or SIZES[d.dim_param] for d in tensor.shape.dim]
    return (9 * rng.random(shape)).astype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))


def corrupted(program: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Damages a file at random. Returns the damage in words, and the file."""
    good = Program.from_bytes(program)
    calls_code = any(name.encode() in good.part(good.header["modules"]["wasm"]) for name in FUNCTIONS)
    kind = draw.choice(["bits", "cut", "header", "header", "header", "header", *["constants"] * 12 * calls_code])
    if kind == "cut":
        size = draw.randrange(len(program))
        return f"cut to {size}", program[:size]
    if kind == "bits":
        data = bytearray(program)
        places = [draw.randrange(len(data)) for _ in range(draw.choice([1, 1, 8]))]
        for n in places:
            data[n] ^= 1 << draw.randrange(8)
        return f"bits of bytes {places}", bytes(data)
    if kind == "constants":
        return _change_constants(good, draw)
    header = copy.deepcopy(good.header)
    told = "; ".join(_change(header, draw) for _ in range(draw.choice([1, 1, 1, 2, 4])))
    return told, Program(header, good.blob).to_bytes()


def _change_constants(good: Program, draw: random.Random) -> tuple[str, bytes]:
    """Changes constants of one byte in the code: offsets, strides, extents, flags, numbers of memories."""
    start, size = good.header["modules"]["wasm"]
    blob = bytearray(good.blob)
    places = [n for n in range(start, start + size - 1) if blob[n] == I32_CONST and blob[n + 1] < 0x80]
    changed = draw.sample(places, min(len(places), draw.choice([1, 1, 2, 8])))
    for n in changed:
        blob[n + 1] = draw.choice([0, 1, 2, 4, 63, 64, 127, blob[n + 1] ^ 1, draw.randrange(128)])
    return f"constants at {changed}", Program(good.header, bytes(blob)).to_bytes()


def _change(header: dict[str, Any], draw: random.Random) -> str:
    """Changes one entry, of any depth with equal probability. Returns the change in words."""
    path: list[str | int] = []
    outer: Any = {"header": header}
    key: Any = "header"
    while isinstance(outer[key], dict | list) and outer[key] and (not path or draw.random() > 0.15):
        outer = outer[key]
        keys = list(outer) if isinstance(outer, dict) else range(len(outer))
        key = draw.choice([k for k in keys if k not in ("explain", "name")] or [0])
        path.append(key)
    old = outer[key]
    kind = draw.choice(["odd", "near", "remove", "double", "swap"])
    if kind == "remove":
        del outer[key]
    elif kind == "double" and isinstance(outer, list):
        outer.insert(key, copy.deepcopy(old))
    elif kind == "swap" and len(outer) > 1:
        other = draw.choice(list(outer) if isinstance(outer, dict) else range(len(outer)))
        outer[key], outer[other] = outer[other], outer[key]
    elif kind == "near" and isinstance(old, int):
        outer[key] = old + draw.choice([-1, 1, 4, -4, old])
    else:
        outer[key] = draw.choice(ODD)
    return f"{kind} {'.'.join(map(str, path))}: {json.dumps(old)[:40]}"


def cases(found: list[tuple[str, bytes, dict[str, Any]]], seed: int, first: int, count: int) -> Iterator[Case]:
    """Cases by number, each with its own random seed, so that one can be repeated."""
    for n in range(first, count):
        draw = random.Random(f"{seed} {n}")
        name, program, feeds = draw.choice(found)
        told, data = corrupted(program, draw)
        yield f"{n} {name}: {told}", data, feeds


def outcome(data: bytes, feeds: dict[str, Any]) -> str:
    """The outcome of opening and running a file: "ran", the name of a typed error, or "untyped: …". Code that runs for
    ever is stopped."""
    options = RunOptions()
    timer = threading.Timer(SECONDS / 4, lambda: setattr(options, "terminate", True))
    try:
        session = InferenceSession(data, SessionOptions(memory_limit=BYTES // 4))
        timer.start()
        session.run(None, feeds, options)
        return "ran"
    except InternalError as error:
        return f"untyped: {error}"
    except PyRuntimeError as error:
        return type(error).__name__
    except Exception as error:
        return f"untyped: {type(error).__name__}: {error}"
    finally:
        timer.cancel()


def watched(found: list[Any], seed: int, count: int) -> Iterator[tuple[str, str]]:
    """The damage and its outcome, from a subprocess that is ended if it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "sources")
        place.write_bytes(pickle.dumps(found))
        first = 0
        while first < count:
            command = [sys.executable, "-m", "kit.corrupted", "--worker", str(place)]
            command += ["--seed", str(seed), "--first", str(first), "--count", str(count)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                told = f"{first}"
                for line in child.stdout:
                    kind, _, rest = line.rstrip("\n").partition("\t")
                    if kind == "begins":
                        told = rest
                        continue
                    yield told, rest
                    first += 1
            if first < count:
                # opening a Program runs its first block, which nothing stops if it has an endless loop
                is_endless = child.returncode == -signal.SIGXCPU and ": constants at" in told
                yield told, "endless" if is_endless else f"ended the process by {child.returncode}"
                first += 1


def work(place: Path, seed: int, first: int, count: int) -> None:
    """The subprocess of `watched`. The system ends it after SECONDS of processor time for one case."""
    for told, data, feeds in cases(pickle.loads(place.read_bytes()), seed, first, count):
        print("begins", told.replace("\n", " "), sep="\t", flush=True)
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + SECONDS, resource.RLIM_INFINITY))
        end = outcome(data, feeds)
        peak = _peak()
        print("ends", end.replace("\n", " ") + (f", {peak} bytes" if peak > BYTES else ""), sep="\t", flush=True)


def _peak() -> int:
    """The most bytes of memory that this program has had. ru_maxrss would begin with those of the parent process."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kit.corrupted", description=__doc__)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--machine-code", action="store_true")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.seed, args.first, args.count)
        return 0
    counts: dict[str, int] = {}
    bad = 0
    for told, end in watched(native_sources() if args.machine_code else sources(), args.seed, args.count):
        name = end.partition(":")[0]
        counts[name] = counts.get(name, 0) + 1
        if not end.isidentifier():
            bad += 1
            print(told, "->", end)
    print(f"corrupted programs: {args.count} cases: {bad} untyped, too slow or too large", counts)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
