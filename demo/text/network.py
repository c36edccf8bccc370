"""A small decoder in NumPy that can learn, and the same as an ONNX model with caches of keys and values.

    tokens (B, T) -> embeddings -> LAYERS x (norm, causal attention, norm, relu) -> norm -> embeddings -> (B, T, TOKENS)

Positions enter only as biases of scores, -slope · distance with a slope for each head (ALiBi,
https://arxiv.org/abs/2108.12409), so the length of a text is not limited. Norms have no weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TOKENS, WIDTH, LAYERS, HEADS = 512, 64, 2, 4
PART = WIDTH // HEADS
SLOPES = np.float32(0.5) ** np.arange(1, HEADS + 1, dtype=np.float32)
EPSILON, HIDDEN = 1e-5, -1e4

LAYER = {
    "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)
}  # fmt: skip

Array = np.ndarray[Any, Any]


class Network:
    """Weights, and one Adam step down the cross entropy of a batch (`learn`)."""

    def __init__(self, generator: np.random.Generator, tokens: int = TOKENS) -> None:
        shapes = {f"{n}.{name}": shape for n in range(LAYERS) for name, shape in LAYER.items()}
        self.weights = {
            name: (generator.standard_normal(shape) * (0.05 if name == "embedding" else shape[0] ** -0.5)).astype("f4")
            for name, shape in {"embedding": (tokens, WIDTH), **shapes}.items()
        }
        for n in range(LAYERS):  # at first, each layer changes its input only slightly
            for name in ("out", "down"):
                self.weights[f"{n}.{name}"] *= 0.3
        self.moments = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in self.weights.items()}

    def forward(self, tokens: Array) -> tuple[Array, list[Any]]:
        """Return the logits, and the values of each layer that `learn` needs."""
        w, kept = self.weights, []
        x = w["embedding"][tokens]
        far = np.arange(tokens.shape[1])[None, :] - np.arange(tokens.shape[1])[:, None]
        bias = np.where(far > 0, np.float32(HIDDEN), SLOPES[:, None, None] * far).astype(np.float32)
        for n in range(LAYERS):
            a, scale = normed(x)
            q, k, v = (heads(part) for part in np.split(a @ w[f"{n}.qkv"], 3, -1))
            shares = softmax(q @ k.swapaxes(2, 3) * np.float32(PART**-0.5) + bias)
            seen = together(shares @ v)
            x = x + seen @ w[f"{n}.out"]
            b, below = normed(x)
            up = np.maximum(b @ w[f"{n}.up"], 0)
            x = x + up @ w[f"{n}.down"]
            kept.append((a, scale, q, k, v, shares, seen, b, below, up))
        last, scale = normed(x)
        return last @ w["embedding"].T, [*kept, (last, scale)]

    def learn(self, tokens: Array, following: Array, rate: float, step: int) -> float:
        """The mean cross entropy before the step."""
        logits, (*layers, (last, scale)) = self.forward(tokens)
        slope = softmax(logits)
        chosen = np.take_along_axis(slope, following[..., None], -1)
        np.put_along_axis(slope, following[..., None], chosen - 1, -1)
        slope /= following.size
        w, slopes = self.weights, {"embedding": flat(slope).T @ flat(last)}
        slope = unnormed(slope @ w["embedding"], last, scale)
        for n in reversed(range(LAYERS)):
            slope = self._back(n, slope, layers[n], slopes)
        np.add.at(slopes["embedding"], tokens.reshape(-1), flat(slope))
        self._descend(slopes, rate, step)
        return float(-np.log(chosen + 1e-9).mean())

    def _back(self, n: int, slope: Array, kept: Any, slopes: dict[str, Array]) -> Array:
        """Return the gradient with respect to a layer's input."""
        a, scale, q, k, v, shares, seen, b, below, up = kept
        w = self.weights
        slopes[f"{n}.down"] = flat(up).T @ flat(slope)
        inner = (slope @ w[f"{n}.down"].T) * (up > 0)
        slopes[f"{n}.up"] = flat(b).T @ flat(inner)
        slope = slope + unnormed(inner @ w[f"{n}.up"].T, b, below)
        slopes[f"{n}.out"] = flat(seen).T @ flat(slope)
        d = heads(slope @ w[f"{n}.out"].T)
        scores = d @ v.swapaxes(2, 3)
        scores = shares * (scores - (scores * shares).sum(-1, keepdims=True)) * np.float32(PART**-0.5)
        parts = (scores @ k, scores.swapaxes(2, 3) @ q, shares.swapaxes(2, 3) @ d)
        joint = np.concatenate([together(part) for part in parts], -1)
        slopes[f"{n}.qkv"] = flat(a).T @ flat(joint)
        return slope + unnormed(joint @ w[f"{n}.qkv"].T, a, scale)

    def _descend(self, slopes: dict[str, Array], rate: float, step: int) -> None:
        for name, slope in slopes.items():
            mean, square = self.moments[name]
            mean += 0.1 * (slope - mean)
            square += 0.02 * (slope**2 - square)
            change = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.98**step)) + 1e-8)
            self.weights[name] -= (rate * (change + 0.05 * self.weights[name])).astype(np.float32)


def flat(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def heads(x: Array) -> Array:
    """(B, T, WIDTH) -> (B, HEADS, T, PART)"""
    return x.reshape(*x.shape[:2], HEADS, PART).swapaxes(1, 2)


def together(x: Array) -> Array:
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(x.shape[0], x.shape[2], WIDTH)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def normed(x: Array) -> tuple[Array, Array]:
    """Return x divided by its root mean square, and that root."""
    size = np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(EPSILON))
    return x / size, size


def unnormed(slope: Array, y: Array, size: Array) -> Array:
    """Return the gradient with respect to the input of `normed`, given the gradient with respect to its result y."""
    return (slope - y * (slope * y).mean(-1, keepdims=True)) / size


# ── as a model ────────────────────────────────────────────────────────────────────────────────────────────────────


def to_onnx(network: Network, batch: int | str = 1) -> bytes:
    """Write the model in the form of exported decoders: input_ids and past keys and values give logits and present
    ones. Weights are float16, which start-up converts to float32. batch: a number of texts, or the name of a dim"""
    from onnx import TensorProto, helper, numpy_helper

    nodes, pasts = Nodes(), [f"past_key_values.{n}.{part}" for n in range(LAYERS) for part in ("key", "value")]
    x = nodes("Gather", nodes.weight("embedding"), "input_ids")
    bias = nodes.bias(pasts[0])
    for n in range(LAYERS):
        x = nodes("Add", x, nodes.attention(n, nodes.norm(x), bias, pasts[2 * n : 2 * n + 2]))
        up = nodes("Relu", nodes("MatMul", nodes.norm(x), nodes.weight(f"{n}.up")))
        x = nodes("Add", x, nodes("MatMul", up, nodes.weight(f"{n}.down")))
    nodes("MatMul", nodes.norm(x), nodes("Transpose", nodes.weight("embedding"), perm=[1, 0]), out="logits")

    def value(name: str, kind: int, *shape: Any) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    float_, cache = TensorProto.FLOAT, (batch, HEADS, "past", PART)
    inputs = [value("input_ids", TensorProto.INT64, batch, "new"), *[value(p, float_, *cache) for p in pasts]]
    outputs = [value("logits", float_, batch, "new", len(network.weights["embedding"]))]
    outputs += [value(present(p), float_, batch, HEADS, "all", PART) for p in pasts]
    constants: dict[str, Any] = {
        "scale": np.float32(PART**-0.5), "together": [0, 0, WIDTH], "heads": [0, 0, HEADS, PART], "column": [-1, 1],
        "slopes": SLOPES.reshape(HEADS, 1, 1), "hidden": np.float32(HIDDEN), "zero": 0, "one": 1, "last": [-1],
        "nothing": np.float32(0), "epsilon": np.float32(EPSILON),
    }  # fmt: skip
    constants |= {n: w.astype(np.float16) for n, w in network.weights.items()}
    initializers = [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()]
    graph = helper.make_graph(nodes.all, "decoder", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def present(past: str) -> str:
    return past.replace("past_key_values", "present")


class Nodes:
    """Adds a node for an operator and its inputs; returns the name of the result."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        from onnx import helper

        out = out or f"t{len(self.all)}"
        self.all.append(helper.make_node(op, inputs, [out], f"{op}_{len(self.all)}", **attributes))
        return out

    def weight(self, name: str) -> str:
        return self("Cast", name, to=1)

    def norm(self, x: str) -> str:
        mean = self("ReduceMean", self("Mul", x, x), "last", keepdims=1)
        return self("Div", x, self("Sqrt", self("Add", mean, "epsilon")))

    def bias(self, past: str) -> str:
        """(HEADS, new, all): the bias of scores by distance; keys after the query are masked."""
        before, new = (self("Squeeze", self("Shape", x, start=n, end=n + 1)) for x, n in ((past, 2), ("input_ids", 1)))
        end = self("Add", before, new)
        keys, queries = self("Range", "zero", end, "one"), self("Range", before, end, "one")
        far = self("Cast", self("Sub", keys, self("Reshape", queries, "column")), to=1)
        return self("Where", self("Greater", far, "nothing"), "hidden", self("Mul", "slopes", far))

    def attention(self, layer: int, x: str, bias: str, pasts: list[str]) -> str:
        joint = self("MatMul", x, self.weight(f"{layer}.qkv"))
        self("Split", joint, out=f"{layer}.q", axis=-1, num_outputs=3)
        self.all[-1].output.extend([f"{layer}.k", f"{layer}.v"])
        q, k, v = (self("Transpose", self("Reshape", f"{layer}.{p}", "heads"), perm=[0, 2, 1, 3]) for p in "qkv")
        k, v = (self("Concat", past, x, axis=2, out=present(past)) for past, x in zip(pasts, (k, v), strict=True))
        scores = self("MatMul", self("Mul", q, "scale"), self("Transpose", k, perm=[0, 1, 3, 2]))
        seen = self("MatMul", self("Softmax", self("Add", scores, bias), axis=-1), v)
        seen = self("Reshape", self("Transpose", seen, perm=[0, 2, 1, 3]), "together")
        return self("MatMul", seen, self.weight(f"{layer}.out"))
