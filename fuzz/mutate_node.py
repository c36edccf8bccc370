"""Changes of one node; most keep it valid: equal dims stay equal, types that the schema ties stay tied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fuzz.draw import DIMS, Draw, is_float
from fuzz.node import Node
from fuzz.signatures import find, signatures

NAMES = {"float": "float32", "double": "float64"}


def dtype_named(text: str) -> np.dtype | None:
    """The type that a schema calls "tensor(float)" and so on; None if it is not a tensor or has no NumPy type."""
    if not text.startswith("tensor("):
        return None
    name = text[7:-1].upper()
    if name == "STRING":
        return np.dtype(object)
    code = getattr(onnx.TensorProto, name, None)
    return None if code is None else np.dtype(helper.tensor_dtype_to_np_dtype(code))


def convert(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The nearest values of another type; strings where one side is strings."""
    if x.dtype == dtype:
        return x
    with np.errstate(all="ignore"):
        if dtype.kind == "O":
            return np.array([str(v) for v in x.ravel().tolist()], object).reshape(x.shape)
        if x.dtype.kind == "O":
            return np.arange(x.size).reshape(x.shape).astype(dtype)
        if dtype.kind == "u" and x.dtype.kind != "b":
            x = np.abs(x.astype(np.float64) if is_float(x.dtype) else x)
        if x.dtype.kind == "V":
            x = x.astype(np.float32)
        return x.astype(dtype)


def resize(x: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Repeats or cuts off elements along an axis; an empty axis is filled with zeros."""
    if not x.shape[axis]:
        return np.zeros([size if n == axis else d for n, d in enumerate(x.shape)], x.dtype)
    return np.take(x, np.arange(size) % x.shape[axis], axis)


def change_dims(draw: Draw, node: Node) -> None:
    """Changes every dim of one size in all inputs, and equal numbers in small integer inputs and attributes."""
    arrays = [x for x in node.inputs if isinstance(x, np.ndarray)]
    sizes = sorted({d for x in arrays for d in x.shape})
    if not sizes:
        return
    old, new = draw.pick(sizes), draw.pick(DIMS)
    follow = draw.chance(0.6)
    for n, x in enumerate(node.inputs):
        if not isinstance(x, np.ndarray):
            continue
        parameter = x.dtype == np.int64 and x.ndim <= 1
        if parameter and follow and x.size <= 8:
            node.inputs[n] = np.where(x == old, new, x)
            if not draw.chance(0.2):
                continue
        for axis, d in enumerate(x.shape):
            if d == old and x.size // max(d, 1) * new <= 100_000:
                x = resize(x, axis, new)
        node.inputs[n] = x
    if follow and draw.chance(0.5):
        for key, value in node.attributes.items():
            if isinstance(value, int) and value == old > 1:
                node.attributes[key] = new


def change_one_dim(draw: Draw, node: Node) -> None:
    """Changes one axis of one input: a broadcast, or a mistake."""
    places = [(n, a) for n, x in enumerate(node.inputs) if isinstance(x, np.ndarray) for a in range(x.ndim)]
    if places:
        n, axis = draw.pick(places)
        node.inputs[n] = resize(node.inputs[n], axis, draw.pick(_near(node.inputs[n].shape[axis])))


def _near(size: int) -> list[int]:
    return [0, 1, 1, 2, max(size - 1, 0), size + 1]


def change_one_rank(draw: Draw, node: Node) -> None:
    """Adds or removes a leading axis of one input."""
    places = [n for n, x in enumerate(node.inputs) if isinstance(x, np.ndarray)]
    if places:
        n = draw.pick(places)
        x = node.inputs[n]
        node.inputs[n] = np.asarray(x[0]) if x.ndim and x.shape[0] and draw.chance(0.5) else x[None]


def change_rank(draw: Draw, node: Node) -> None:
    """Adds or removes an axis of all inputs of the highest rank, or of one input."""
    ranks = [x.ndim if isinstance(x, np.ndarray) else -1 for x in node.inputs]
    if not ranks or max(ranks) < 0:
        return
    chosen = [n for n, r in enumerate(ranks) if r == max(ranks)]
    chosen = chosen if draw.chance(0.6) else [draw.pick([n for n, r in enumerate(ranks) if r >= 0])]
    how = draw.below(3)
    for n in chosen:
        x = node.inputs[n]
        if how == 0:
            node.inputs[n] = x[None]
        elif how == 1 and x.ndim and x.shape[0]:
            node.inputs[n] = x[0]
        else:
            node.inputs[n] = x[..., None]


def change_type(draw: Draw, node: Node) -> None:
    """Changes one type variable of the schema, in all inputs that share it."""
    signature = find(node.domain, node.op, node.opset)
    if signature is None or not signature.types:
        return
    variable = draw.pick(sorted(signature.types))
    kinds = [d for d in map(dtype_named, signature.types[variable]) if d is not None and d.kind != "c"]
    if not kinds:
        return
    dtype = draw.pick(kinds)
    for n, x in enumerate(node.inputs):
        parameter = signature.parameter(n)
        if isinstance(x, np.ndarray) and parameter is not None and parameter.kind == variable:
            node.inputs[n] = convert(x, dtype)
    if "to" in node.attributes and draw.chance(0.5):
        node.attributes["to"] = draw.between(0, 26)


def change_values(draw: Draw, node: Node) -> None:
    """New data with extreme values; small integer inputs change by a little."""
    for n, x in enumerate(node.inputs):
        if not isinstance(x, np.ndarray) or not draw.chance(0.6):
            continue
        if x.dtype.kind in "iu" and x.size <= 8 and x.ndim <= 1:
            _nudge(draw, node, n, x)
        else:
            node.inputs[n] = draw.array(x.dtype, x.shape, 0.4)


def _nudge(draw: Draw, node: Node, n: int, x: np.ndarray) -> None:
    """Changes one number of a parameter such as axes or a shape."""
    if not x.size or not draw.chance(0.4):
        return
    x = x.copy()
    at = draw.below(x.size)
    edge = draw.pick([0, 1, -1, 2, -2, 3, 2**31, 2**63 - 1, -(2**63)]) if draw.chance(0.3) else int(x.flat[at])
    info = np.iinfo(x.dtype)
    x.flat[at] = min(max(edge + draw.pick([-1, 0, 1]), info.min), info.max)
    node.inputs[n] = x


def change_attribute(draw: Draw, node: Node) -> None:
    """Sets, changes or removes one attribute of the schema."""
    signature = find(node.domain, node.op, node.opset)
    if signature is None or not signature.attributes:
        return
    name = draw.pick(sorted(signature.attributes))
    kind, required, default = signature.attributes[name]
    if name in node.attributes and not required and draw.chance(0.3):
        del node.attributes[name]
        return
    value = attribute(draw, kind, node.attributes.get(name, default))
    if value is not None:
        node.attributes[name] = value


WORDS = """AUTO SAME_UPPER SAME_LOWER VALID NOTSET constant reflect edge wrap linear cubic nearest bilinear bicubic
zeros border reflection none add mul max min mean sum forward reverse bidirectional Tanh Relu Sigmoid tanh half_pixel
asymmetric align_corners floor ceil round_prefer_floor LOWER UPPER NONE left right DCR CRD ij,jk->ik SOFTMAX LOGISTIC
avg""".split()
INTS = [0, 1, 1, 1, 2, 2, 3, 4, -1, -2, 5, 8]
EXTREMES = [2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63), 1000]
REALS = [0.0, 1.0, 0.5, -1.0, 2.0, 1e-5, 0.01, 100.0]


def attribute(draw: Draw, kind: str, old: Any) -> Any:
    """A plausible value, at times an extreme one; None for graphs and tensors."""
    if kind == "INT":
        return draw.pick(EXTREMES) if draw.chance(0.08) else draw.pick(INTS)
    if kind == "FLOAT":
        return draw.pick([np.nan, np.inf, -np.inf, 3e38, 1e-45, -0.0]) if draw.chance(0.1) else draw.pick(REALS)
    if kind == "STRING":
        return draw.pick(WORDS)
    if kind == "INTS":
        return _ints(draw, old)
    if kind == "FLOATS":
        return [draw.pick(REALS) for _ in range(len(old) if old else draw.below(4))]
    if kind == "STRINGS":
        return [draw.pick(WORDS) for _ in range(len(old) if old else draw.below(4))]
    return None


def _ints(draw: Draw, old: Any) -> list[int]:
    numbers = [int(v) for v in old] if old is not None else []
    numbers = numbers or [draw.pick(INTS) for _ in range(draw.below(5))]
    how = draw.below(4)
    if how == 0 and numbers:
        numbers[draw.below(len(numbers))] = draw.pick(EXTREMES) if draw.chance(0.1) else draw.pick(INTS)
    elif how == 1:
        numbers = [max(v + draw.pick([-1, 0, 1, 1]), -3) for v in numbers]
    elif how == 2:
        numbers = [draw.pick([1, 2, 3])] * len(numbers)
    else:
        numbers = numbers[:-1] if draw.chance(0.5) else [*numbers, 1]
    return numbers


def change_arity(draw: Draw, node: Node) -> None:
    """Removes an input or an output, or adds an output."""
    signature = find(node.domain, node.op, node.opset)
    how = draw.below(3)
    optional = [
        n
        for n, x in enumerate(node.inputs)
        if x is not None and signature and (p := signature.parameter(n)) and p.option != "Single"
    ]
    if how == 0 and optional:
        n = draw.pick(optional)
        node.inputs[n] = None
        node.types.pop(n, None)
    elif how == 1 and len(node.has_output) > 1:
        node.has_output[draw.below(len(node.has_output))] = False
        if not any(node.has_output):
            node.has_output[0] = True
    elif signature and len(node.has_output) < len(signature.outputs):
        node.has_output.append(True)


def change_opset(draw: Draw, node: Node) -> None:
    versions = [s.since for s in signatures().get((node.domain, node.op), ())]
    if versions and node.domain != "com.microsoft":
        node.opset = max(draw.pick(versions), draw.pick([7, 7, 7, 1]) if node.domain == "" else 1)


CHANGES: list[tuple[float, Callable[[Draw, Node], None]]] = [
    (0.45, change_dims),
    (0.06, change_one_dim),
    (0.08, change_rank),
    (0.3, change_type),
    (0.5, change_values),
    (0.4, change_attribute),
    (0.12, change_arity),
    (0.12, change_opset),
]


def mutate(draw: Draw, node: Node) -> None:
    """Applies some of the changes, in place."""
    for chance, change in CHANGES:
        if draw.chance(chance):
            change(draw, node)
