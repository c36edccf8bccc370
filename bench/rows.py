"""python -m bench rows: products of 2 to 16 rows, natively beside onnxruntime.

A cell of the grid is a number of rows, a type of the weights and a shape (sum x columns). The model multiplies its rows
by several constant matrices of that shape, so that no cache keeps them all; the number of rows is a symbol. Both
runtimes run in turns. A product cannot take less than its multiply-adds at the 128-bit peak of float32, nor less than
its weights at the memory's bandwidth, that of generated code or of a search for a byte. Both are measured again for
each shape, and the best counts. `share` is that bound over our best time (on one thread the processor's time), for
other work makes a machine slower, never faster. `peer` is the median of the turns' ratios, onnxruntime's time over
ours.

The type fp32t is Gemm with transposed weights; fp32 is Gemm without. int8 and int4 are MatMulNBits in blocks of 32.

--decoders: steps of decoders with a batch of 2, as models like GPT-2 and like Llama have them.

--costs: milliseconds of one row, and how many times as much several rows cost, on one thread, all in turns, medians:
natively with and without machine code and by onnxruntime (the processor's time), and with --page in Chromium beside
onnxruntime-web.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench import machine
from bench.chromium import chromium
from bench.llm import bandwidth
from bench.operators import sessions, turns
from bench.results import geomean_of
from bench.row_costs import in_page, natively, show
from kit.decoders import SIZES, Decoder
from kit.decoders import feeds as decoder_feeds
from pyruntime.native.tools import advising
from pyruntime.native.tools.advising import peak

ROWS = (2, 4, 6, 8, 16)
TYPES = ("fp32", "fp32t", "fp16", "int8", "int4")
SHAPES = ("576x576", "768x3072", "3072x768", "2048x2048", "2048x8192", "576x49152")
ELEMENTS = 1 << 24  # of all matrices of a model, at least
BLOCK = 32
TYPES_OF_DECODERS = ("fp32", "fp16", "int8", "int4")
PAST = 64  # positions behind which decoders make a step
Cell = tuple[float, float]  # the share of the bound, the ratio to the peer


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench rows", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--types", nargs="+", default=TYPES, help=f"of {', '.join(TYPES)}, int8a, int4a (level 4)")
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=0.5, help="for each cell, at least five turns")
    parser.add_argument("--alone", action="store_true", help="without onnxruntime")
    parser.add_argument("--decoders", action="store_true", help="steps of decoders instead of products")
    parser.add_argument("--costs", action="store_true", help="times relative to one row")
    parser.add_argument("--page", action="store_true", help="with --costs: in Chromium, too")
    args = parser.parse_args(argv)
    print(f"{machine.processor()}, load {machine.load()}")
    if args.costs:
        return costs(args)
    for threads in args.threads:
        if args.decoders:
            print(f"{threads} thread(s), batch of 2; ms a step, onnxruntime's, ratio")
            decoders(args, threads)
        else:
            grid(args, threads)
    return 0


def costs(args: argparse.Namespace) -> int:
    rows = (1, *args.rows)
    print(f"{'':34}{'ms':>8}" + "".join(f"{f'{m} rows':>8}" for m in args.rows))
    with chromium() if args.page else nullcontext() as opened:
        for shape in args.shapes:
            k, n = map(int, shape.split("x"))
            for kind in (kind for kind in args.types if kind != "fp16"):
                data = model(kind, k, n)[0]
                show(f"{shape:11}{kind}", natively(data, k, rows, busy))
                if opened:
                    show(f"{shape:11}{kind}", in_page(opened, data, k, rows))
    return 0


def grid(args: argparse.Namespace, threads: int) -> None:
    print(f"{threads} thread(s); share of the nearer bound, ratio to onnxruntime")
    print(f"{'':18}" + "".join(f"{f'{rows} rows':>12}" for rows in args.rows), flush=True)
    operations, bytes_ = 0.0, 0.0
    cells: dict[tuple[str, int], list[Cell]] = {}
    for shape in args.shapes:
        operations = max(operations, threads * peak())
        bytes_ = max(bytes_, bandwidth(threads), advising.bandwidth())
        for kind in args.types:
            found = measure(kind, shape, args, threads, (operations, bytes_))
            for rows, cell in found.items():
                cells.setdefault((kind, rows), []).append(cell)
            print(f"{shape:11}{kind:7}" + "".join(map(text, found.values())), flush=True)
    for kind in args.types:
        of_kind = [cells[kind, rows] for rows in args.rows]
        means = [(geomean_of([c[0] for c in some]), geomean_of([c[1] for c in some])) for some in of_kind]
        print(f"{'mean':11}{kind:7}" + "".join(map(text, means)))
    shares = [share for some in cells.values() for share, _ in some]
    print(f"peak {operations / 1e9:.1f} GFLOP/s, bandwidth {bytes_ / 1e9:.1f} GB/s, {threads} thread(s)")
    print(f"rows: mean {geomean_of(shares):.2f}, {sum(s >= 0.7 for s in shares)} of {len(shares)} cells at 0.7 or more")


def text(cell: Cell) -> str:
    return f"{cell[0]:7.2f}{cell[1]:5.1f}"


def measure(
    kind: str, shape: str, args: argparse.Namespace, threads: int, limits: tuple[float, float]
) -> dict[int, Cell]:
    k, n = map(int, shape.split("x"))
    data, size, count = model(kind, k, n)
    pair = sessions(data, threads)[: 1 if args.alone else 2]
    found = {}
    for rows in args.rows:
        x = np.random.default_rng(0).standard_normal((rows, k)).astype("f2" if kind == "fp16" else "f4")
        times = turns(pair, {"x": x}, args.seconds)
        best = min(busy(pair[0], {"x": x}) for _ in times[0]) if threads == 1 else min(times[0])
        bound = max(2 * rows * k * n * count / limits[0], size / limits[1])
        found[rows] = bound / best, ratio(times)
    return found


def busy(session: Any, feeds: dict[str, np.ndarray]) -> float:
    """Return the processor's seconds of a run."""
    start = time.process_time()
    session.run(None, feeds)
    return time.process_time() - start


def ratio(times: list[list[float]]) -> float:
    return statistics.median(b / a for a, b in zip(times[0], times[-1], strict=True))


def model(kind: str, k: int, n: int) -> tuple[bytes, int, int]:
    """Return the model, the bytes of its weights, and the number of its matrices."""
    count = -(-ELEMENTS // (k * n))
    of = TensorProto.FLOAT16 if kind == "fp16" else TensorProto.FLOAT
    nodes, weights, size = [], [], 0
    for at in range(count):
        made, arrays = product(kind, k, n, at)
        nodes.append(made)
        weights += [numpy_helper.from_array(array, name) for name, array in arrays.items()]
        size += sum(array.nbytes for array in arrays.values())
    outputs = [helper.make_tensor_value_info(node.output[0], of, ["rows", n]) for node in nodes]
    inputs = [helper.make_tensor_value_info("x", of, ["rows", k])]
    graph = helper.make_graph(nodes, "rows", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString(), size, count


def product(kind: str, k: int, n: int, at: int) -> tuple[onnx.NodeProto, dict[str, np.ndarray]]:
    """Return a node with the output y[at], and its weights."""
    random, out = np.random.default_rng(at), f"y{at}"
    if kind.startswith("fp"):
        transposed = kind == "fp32t"
        values = random.standard_normal((n, k) if transposed else (k, n), np.float32)
        array = (values / np.float32(k**0.5)).astype("f2" if kind == "fp16" else "f4")
        op, more = ("MatMul", {}) if kind == "fp16" else ("Gemm", {"transB": int(transposed)})
        return helper.make_node(op, ["x", f"w{at}"], [out], **more), {f"w{at}": array}
    bits, blocks = int(kind[3]), k // BLOCK
    codes = random.integers(0, 256, (n, blocks, BLOCK * bits // 8), np.uint8)
    scales = np.full((n, blocks), 2.0 ** (1 - bits) / k**0.5, np.float32)
    node = helper.make_node(
        "MatMulNBits", ["x", f"w{at}", f"s{at}"], [out], domain="com.microsoft", K=k, N=n, bits=bits,
        block_size=BLOCK, accuracy_level=4 * kind.endswith("a"),
    )  # fmt: skip
    return node, {f"w{at}": codes, f"s{at}": scales}


# ── decoders ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def decoders(args: argparse.Namespace, threads: int) -> None:
    """Print the times of a step with a batch of 2 behind PAST positions."""
    for name, (data, feeds) in {"gpt2-like": gpt2(12), **llamas(args.types)}.items():
        times = turns(sessions(data, threads), feeds, 4 * args.seconds)
        ours, theirs = (1e3 * statistics.median(took) for took in times)
        print(f"{name:20}{ours:9.2f}{theirs:9.2f}{ratio(times):7.2f}", flush=True)


def llamas(kinds: list[str]) -> dict[str, tuple[bytes, dict[str, np.ndarray]]]:
    made = {}
    for kind in (k for k in kinds if k in TYPES_OF_DECODERS):
        given = decoder_feeds(SIZES["135M"], kind, 1, PAST)
        batch = {k: np.concatenate([x, x]) if x.ndim else x for k, x in given.items()}
        made[f"llama-like {kind}"] = Decoder(SIZES["135M"], kind, empty=False).model().SerializeToString(), batch
    return made


def gpt2(layers: int) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a model of GPT-2's shapes with Gemm, and its feeds."""
    width, heads, words = 768, 12, 50257
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    random = np.random.default_rng(0)

    def put(*shape: int) -> str:
        array = random.standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5)
        weights.append(numpy_helper.from_array(array, f"w{len(weights)}"))
        return weights[-1].name

    def node(op: str, *inputs: str, outputs: list[str] | None = None, **attributes: Any) -> str:
        names = outputs or [f"t{len(nodes)}"]
        domain = "com.microsoft" if op == "MultiHeadAttention" else ""
        nodes.append(helper.make_node(op, list(inputs), names, domain=domain, **attributes))
        return names[0]

    def gemm(x: str, k: int, n: int) -> str:
        return node("Gemm", x, put(k, n), put(n))

    weights.append(numpy_helper.from_array(np.array([1]), "one"))
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", words])]
    embedding = put(words, width)
    feeds: dict[str, np.ndarray] = {"ids": np.array([1, 2])}
    x = node("Gather", embedding, "ids")
    for n in range(layers):
        y = gemm(node("LayerNormalization", x, put(width), put(width)), width, 3 * width)
        parts = [f"q{n}", f"k{n}", f"v{n}"]
        node("Split", node("Unsqueeze", y, "one"), outputs=parts, axis=2, num_outputs=3)
        pasts, presents = ([f"{when}.{n}.{part}" for part in "kv"] for when in ("past", "present"))
        for names, to, length in ((pasts, inputs, "past"), (presents, outputs, "all")):
            shape = ["batch", heads, length, width // heads]
            to += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in names]
        feeds |= {name: np.zeros((2, heads, PAST, width // heads), np.float32) for name in pasts}
        y = node("MultiHeadAttention", *parts, "", "", "", *pasts, outputs=[f"a{n}", *presents], num_heads=heads)
        x = node("Add", x, gemm(node("Squeeze", y, "one"), width, width))
        y = gemm(node("LayerNormalization", x, put(width), put(width)), width, 4 * width)
        x = node("Add", x, gemm(node("Gelu", y, approximate="tanh"), 4 * width, width))
    node("Gemm", x, embedding, outputs=["logits"], transB=1)
    graph = helper.make_graph(nodes, "gpt2", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString(), feeds
