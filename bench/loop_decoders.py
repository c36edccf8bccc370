"""Decoders as loops: Tacotron 2's, a beam search for CTC, Viterbi and forward recursions of a hidden Markov model.

T steps, B batch, S states or positions, W beams, V words. `DECODERS` has all by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from bench.loop_nodes import INT64, Feeds, Nodes, generation, normal, recurrence

Model = tuple[ModelProto, Feeds]
Names = dict[str, str]


def logarithms(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Logarithms of distributions along the last axis."""
    x = normal(rng, *shape, scale=scale)
    return (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(np.float32)


def cell(n: Nodes, name: str, x: str, h: str, c: str) -> tuple[str, str]:
    """The next h and c of an LSTM cell with the weights NAME_w, NAME_r and NAME_b."""
    total = n("Add", n("Gemm", x, f"{name}_w", f"{name}_b", transB=1), n("MatMul", h, f"{name}_r"))
    i, f, g, o = n("Split", total, out=[n.name() for _ in range(4)], axis=1, num_outputs=4)
    new = n("Add", n("Mul", n("Sigmoid", f), c), n("Mul", n("Sigmoid", i), n("Tanh", g)))
    return n("Mul", n("Sigmoid", o), n("Tanh", new)), new


def tacotron(steps: int, length: int = 64, memory: int = 64, d: int = 128, mels: int = 80) -> Model:
    """Tacotron 2's decoder, a fifth of its sizes: prenet, an LSTM cell with attention on content and location, a second
    one, the next frame, and a gate that ends the loop; here it never does."""
    rng = np.random.default_rng(0)
    prenet, key, filters, kernel = 32, 32, 8, 31

    def linear(rows: int, columns: int) -> np.ndarray:
        return normal(rng, rows, columns, scale=rows**-0.5)

    weights = {
        "pre1": linear(mels, prenet), "pre2": linear(prenet, prenet), "query_w": linear(d, key),
        "location": normal(rng, filters, 2, kernel, scale=0.1), "location_w": linear(filters, key),
        "v": linear(key, 1), "frame_w": linear(d + memory, mels), "frame_b": normal(rng, mels, scale=0.1),
        "stop_w": linear(d + memory, 1), "stop_b": np.full(1, -100, np.float32),
    }  # fmt: skip
    for name, inputs in (("first", prenet + memory), ("second", d + memory)):
        weights |= {f"{name}_w": linear(inputs, 4 * d).T.copy(), f"{name}_r": linear(d, 4 * d)}
        weights[f"{name}_b"] = normal(rng, 4 * d)
    fed = {"memory": normal(rng, 1, length, memory), "keys": normal(rng, 1, length, key)}
    states = {s: np.zeros((1, d), np.float32) for s in ("h1", "c1", "h2", "c2")}
    states |= {s: np.zeros((1, length), np.float32) for s in ("attention", "total")}
    states |= {"context": np.zeros((1, memory), np.float32), "frame": np.zeros((1, mels), np.float32)}

    def step(n: Nodes, s: Names) -> Any:
        x = n("Relu", n("MatMul", n("Relu", n("MatMul", s["frame"], "pre1")), "pre2"))
        h1, c1 = cell(n, "first", n("Concat", x, s["context"], axis=-1), s["h1"], s["c1"])
        both = n("Concat", n.wide(s["attention"], 1), n.wide(s["total"], 1), axis=1)
        place = n("Conv", both, "location", pads=[kernel // 2, kernel // 2])
        place = n("MatMul", n("Transpose", place, perm=[0, 2, 1]), "location_w")
        mixed = n("Tanh", n("Add", n("Add", n.wide(n("MatMul", h1, "query_w"), 1), place), "keys"))
        attention = n("Softmax", n.narrow(n("MatMul", mixed, "v"), -1), axis=1)
        context = n.narrow(n("MatMul", n.wide(attention, 1), "memory"), 1)
        h2, c2 = cell(n, "second", n("Concat", h1, context, axis=-1), s["h2"], s["c2"])
        last = n("Concat", h2, context, axis=-1)
        frame = n("Add", n("MatMul", last, "frame_w"), "frame_b")
        stop = n("Sigmoid", n("Add", n("MatMul", last, "stop_w"), "stop_b"))
        going = n("Squeeze", n("Not", n("Greater", stop, n.number(0.5))))
        new = {"h1": h1, "c1": c1, "h2": h2, "c2": c2, "attention": attention}
        new |= {"total": n("Add", s["total"], attention), "context": context, "frame": frame}
        return going, new, {"frames": frame, "attentions": attention}

    return generation("tacotron", steps, states, weights, step, memory=fed)


def ctc_beam(steps: int, form: str, beams: int = 16, words: int = 32) -> Model:
    """Prefix beam search over the outputs of a CTC model. For each prefix: the probabilities that it ends with a blank
    or without, its last word, and a hash. A prefix that grows into another one of the beam is merged with it. Word 0
    is the blank."""
    rng = np.random.default_rng(0)
    low = np.full(beams, -1e30, np.float32)
    states: Feeds = {"blank": low.copy(), "other": low, "word": np.zeros(beams, np.int64)}
    states |= {"hash": np.arange(beams), "length": np.zeros(beams, np.int64)}
    states["blank"][0] = 0
    weights = {"each": np.arange(words)}

    def step(n: Nodes, x: Names, s: Names) -> Any:
        def log_sum(a: str, b: str) -> str:
            top = n("Max", a, b)
            parts = [n("Exp", n("Sub", v, top)) for v in (a, b)]
            return str(n("Add", top, n("Log", n("Add", *parts))))

        total = log_sum(s["blank"], s["other"])
        blank = n("Add", total, n("Gather", x["scores"], n.constant(0), axis=0))
        other = n("Add", s["other"], n("Gather", x["scores"], s["word"], axis=0))
        is_last = n("Equal", n.wide(s["word"], 1), "each")  # a word twice needs a blank between
        grown = n("Add", n("Where", is_last, n.wide(s["blank"], 1), n.wide(total, 1)), x["scores"])
        grown = n("Where", n("Equal", "each", n.constant(0)), n.number(-1e30), grown)
        hashes = n("Mod", n("Add", n("Mul", n.wide(s["hash"], 1), n.constant(1000003)), "each"), n.constant(1 << 40))
        flat, flat_hashes = n.shaped(grown, -1), n.shaped(hashes, -1)
        same = n("Equal", n.wide(flat_hashes, 1), n.wide(s["hash"], 0))  # (W V, W)
        merged = n("ReduceMax", n("Where", same, n.wide(flat, 1), n.number(-1e30)), n.constant([0]), keepdims=0)
        other = log_sum(other, merged)
        is_merged = n("Cast", n("ReduceMax", n("Cast", same, to=6), n.constant([1]), keepdims=0), to=9)
        flat = n("Where", is_merged, n.number(-1e30), flat)
        scores = n("Concat", log_sum(blank, other), flat, axis=0)
        _, best = n("TopK", scores, n.constant([beams]), out=[n.name(), n.name()], axis=0)
        moved = n("Sub", best, n.constant(beams))
        is_old = n("Less", best, n.constant(beams))
        parent = n("Where", is_old, best, n("Div", moved, n.constant(words)))
        word = n("Where", is_old, n("Gather", s["word"], parent), n("Mod", moved, n.constant(words)))
        length = n("Gather", s["length"], parent)
        none = n("Expand", n.number(-1e30), n.constant([beams * words]))
        new = {
            "blank": n("Gather", n("Concat", blank, none, axis=0), best),
            "other": n("Gather", n("Concat", other, flat, axis=0), best),
            "word": word,
            "hash": n("Gather", n("Concat", s["hash"], flat_hashes, axis=0), best),
            "length": n("Where", is_old, length, n("Add", length, n.constant(1))),
        }
        return new, {"parents": parent, "words": n("Where", is_old, n.constant(0), word)}

    scans = {"scores": logarithms(rng, steps, words, scale=2)}
    return recurrence("ctc_beam", form, steps, scans, states, weights, step, integers=["parents", "words"])


def viterbi(steps: int, form: str, s: int = 64, symbols: int = 32) -> Model:
    """The likeliest states of a hidden Markov model: scores and the best predecessors, then the way back through
    these, in a Scan from the last step to the first."""
    rng = np.random.default_rng(0)
    weights = {"moves": logarithms(rng, s, s), "emits": logarithms(rng, s, symbols)}

    def step(n: Nodes, x: Names, state: Names) -> Any:
        scores = n("Add", n.wide(state["score"], 1), "moves")
        best = n("ReduceMax", scores, n.constant([0]), keepdims=0)
        seen = n("Gather", "emits", x["symbol"], axis=1)
        return {"score": n("Add", best, seen)}, {"from": n("ArgMax", scores, axis=0, keepdims=0)}

    scans = {"symbol": rng.integers(0, symbols, steps)}
    model, feeds = recurrence(
        "viterbi", form, steps, scans, {"score": logarithms(rng, s)}, weights, step, integers=["from"]
    )
    back = Nodes("w_")
    last = back("Identity", back("Gather", "from_t", "place", axis=0), out="before")
    back("Identity", "place", out="here")
    inputs = [helper.make_tensor_value_info(x, INT64, shape) for x, shape in (("place", []), ("from_t", [s]))]
    outputs = [helper.make_tensor_value_info(x, INT64, None) for x in (last, "here")]
    body = helper.make_graph(back.nodes, "back", inputs, outputs)
    end = helper.make_node("ArgMax", ["score_out"], ["end"], axis=0, keepdims=0)
    scan = helper.make_node(
        "Scan", ["end", "from"], ["first", "path"], body=body, num_scan_inputs=1, scan_input_directions=[1],
        scan_output_directions=[1],
    )  # fmt: skip
    model.graph.node.extend([end, scan])
    model.graph.output.append(helper.make_tensor_value_info("path", INT64, None))
    return model, feeds


def forward(steps: int, form: str, s: int = 64, symbols: int = 32) -> Model:
    """The forward recursion of a hidden Markov model in logarithms."""
    rng = np.random.default_rng(0)
    weights = {"moves": logarithms(rng, s, s), "emits": logarithms(rng, s, symbols)}

    def step(n: Nodes, x: Names, state: Names) -> Any:
        total = n("ReduceLogSumExp", n("Add", n.wide(state["alpha"], 1), "moves"), n.constant([0]), keepdims=0)
        new = n("Add", total, n("Gather", "emits", x["symbol"], axis=1))
        return {"alpha": new}, {"alphas": new}

    scans = {"symbol": rng.integers(0, symbols, steps)}
    return recurrence("forward", form, steps, scans, {"alpha": logarithms(rng, s)}, weights, step)


DECODERS: dict[str, Callable[[int], Model]] = {
    "tacotron_loop": tacotron,
    "ctc_beam_scan": lambda t: ctc_beam(t, "scan"),
    "ctc_beam_loop": lambda t: ctc_beam(t, "loop"),
    "viterbi_scan": lambda t: viterbi(t, "scan"),
    "viterbi_loop": lambda t: viterbi(t, "loop"),
    "forward_scan": lambda t: forward(t, "scan"),
    "forward_loop": lambda t: forward(t, "loop"),
}
