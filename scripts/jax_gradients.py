"""Writes tests/training/jax_gradients.npz: losses and gradients by JAX, in float32, of the networks in `NETWORKS`.

JAX is not one of the project's packages, so this runs in an environment of its own (pip install "jax[cpu]" onnx):
python -m scripts.jax_gradients"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from kit import training_networks as networks

VECTORS = Path(__file__).parents[1] / "tests" / "training" / "jax_gradients.npz"


def _convolutional() -> tuple[bytes, dict[str, np.ndarray], np.ndarray]:
    images, labels, _, _ = networks.digits()
    return networks.convolutional(), {"image": images[:16]}, labels[:16]


def _transformer() -> tuple[bytes, dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(4)
    ids, labels = (rng.integers(0, 20, (3, 9)) for _ in range(2))
    return networks.transformer(vocabulary=20, width=16), {"ids": ids}, labels


def _recurrent() -> tuple[bytes, dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(7, 4, 6)).astype(np.float32)
    return networks.recurrent(), {"x": x}, rng.integers(0, 5, 4)


# name -> model, feeds, labels of the classes that "logits" scores
NETWORKS = {"convolutional": _convolutional, "transformer": _transformer, "recurrent": _recurrent}


def main() -> None:
    import jax

    found = {}
    for name, make in NETWORKS.items():
        data, feeds, labels = make()
        graph = onnx.load_from_string(data).graph
        values = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
        floats = {k: v for k, v in values.items() if v.dtype == np.float32 and v.ndim}

        def loss(
            weights: Any, graph: Any = graph, values: Any = values, feeds: Any = feeds, labels: Any = labels
        ) -> Any:
            logits = run(graph, {**values, **feeds, **weights})["logits"]
            scores = jax.nn.log_softmax(logits, -1)
            return -jax.numpy.take_along_axis(scores, labels[..., None], -1).mean()

        value, gradients = jax.value_and_grad(loss)(floats)
        found |= {f"{name}/loss": value, **{f"{name}/{k}": g for k, g in gradients.items()}}
    np.savez_compressed(VECTORS, **found)


def run(graph: Any, values: dict[str, Any]) -> dict[str, Any]:
    for node in graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        made = OPERATORS[node.op_type](*[values[x] if x else None for x in node.input], **attributes)
        made = made if isinstance(made, tuple) else (made,)
        values |= {y: v for y, v in zip(node.output, made, strict=False) if y}
    return values


def _conv(x: Any, w: Any, b: Any, *, pads: list[int]) -> Any:
    import jax

    sides = [(pads[0], pads[2]), (pads[1], pads[3])]
    return jax.lax.conv_general_dilated(x, w, (1, 1), sides) + b[:, None, None]


def _max_pool(x: Any, *, kernel_shape: list[int], strides: list[int]) -> Any:
    import jax

    window, steps = (1, 1, *kernel_shape), (1, 1, *strides)
    return jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, steps, "VALID")


def _layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / ((centred**2).mean(-1, keepdims=True) + 1e-5) ** 0.5 * scale + bias


def _reshape(x: Any, shape: Any) -> Any:
    return x.reshape([x.shape[n] if d == 0 else int(d) for n, d in enumerate(shape)])


def _gelu(x: Any) -> Any:
    import jax

    return jax.nn.gelu(x, approximate=False)


def _softmax(x: Any) -> Any:
    import jax

    return jax.nn.softmax(x, -1)


def _lstm(x: Any, w: Any, r: Any, b: Any, *, hidden_size: int, direction: str) -> Any:
    """Both directions: Y, and the last hidden states."""
    import jax

    assert direction == b"bidirectional"
    outputs, last = [], []
    for d, steps in enumerate((x, x[::-1])):
        bias = b[d, : 4 * hidden_size] + b[d, 4 * hidden_size :]

        def step(state: Any, row: Any, d: int = d, bias: Any = bias) -> Any:
            h, c = state
            i, o, f, g = jax.numpy.split(row @ w[d].T + h @ r[d].T + bias, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jax.numpy.tanh(g)
            h = jax.nn.sigmoid(o) * jax.numpy.tanh(c)
            return (h, c), h

        zeros = jax.numpy.zeros((x.shape[1], hidden_size))
        (h, _), ys = jax.lax.scan(step, (zeros, zeros), steps)
        outputs.append(ys if d == 0 else ys[::-1])
        last.append(h)
    return jax.numpy.stack(outputs, 1), jax.numpy.stack(last)


OPERATORS: dict[str, Any] = {
    "Conv": _conv, "MaxPool": _max_pool, "LayerNormalization": _layer_norm, "Reshape": _reshape, "Gelu": _gelu,
    "Softmax": _softmax, "LSTM": _lstm,
    "Relu": lambda x: x * (x > 0), "Flatten": lambda x: x.reshape(x.shape[0], -1),
    "Gemm": lambda x, w, b, transB=0: x @ (w.T if transB else w) + b,
    "Gather": lambda table, ids: table[ids], "MatMul": lambda a, b: a @ b, "Add": lambda a, b: a + b,
    "Div": lambda a, b: a / b, "Transpose": lambda x, perm: x.transpose(perm),
}  # fmt: skip


if __name__ == "__main__":
    main()
