"""Registers the operator that a visitor writes, makes a model of one node, and lists its code for both providers.

`args`: {"source": Python, "inputs": [[dims], ...]}. The last value is a dict: "operator", "model" (ONNX in base64),
"wasm" and "webgpu" (text), or "error".
"""

import base64
import traceback
from collections.abc import Callable

from pyruntime import browser
from pyruntime.frontend import registry

FLOAT, OPSET = 1, 23


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, value: int | str | bytes) -> bytes:
    """A field of a protobuf message (https://protobuf.dev/programming-guides/encoding)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name: str, dims: list[int] | None) -> bytes:
    """A ValueInfo of floats. dims: None if the compiler finds the shape"""
    shape = b"" if dims is None else field(2, b"".join(field(1, field(1, dim)) for dim in dims))
    return field(1, name) + field(2, field(1, field(1, FLOAT) + shape))


def model(operator: registry.Operator, inputs: list[list[int]], outputs: int) -> bytes:
    """An ONNX model whose only node is the operator."""
    names, results = [f"x{n}" for n in range(len(inputs))], [f"y{n}" for n in range(outputs)]
    strings = [field(1, name) for name in names] + [field(2, name) for name in results]
    node = b"".join(strings) + field(4, operator.name) + field(7, operator.domain)
    values = [field(11, tensor(name, dims)) for name, dims in zip(names, inputs, strict=True)]
    graph = field(1, node) + field(2, "playground") + b"".join(values + [field(12, tensor(r, None)) for r in results])
    opset = field(1, operator.domain) + field(2, max(operator.since, 1))
    return field(1, 10) + field(7, graph) + field(8, opset) + field(8, field(1, "") + field(2, OPSET))


def listing(data: bytes, provider: str) -> str:
    read: Callable[..., bytes] = lambda offset, size, name="": data[offset : offset + size]  # noqa: E731
    options = {"executionProviders": [provider], "gpu": {"name": "any adapter"}, "external": {}}
    return browser.Model(read, len(data), options).listing("", "", True)


def define(source: str) -> registry.Operator:
    """Run the source; the operator that it registers last. Operators of its earlier versions are forgotten: the
    module keeps the table that it had before, because each call of `ort.python` has its own globals."""
    table = registry._TABLE
    before = vars(registry).setdefault("_before_playground", {key: list(versions) for key, versions in table.items()})
    table.clear()
    table.update({key: list(versions) for key, versions in before.items()})
    exec(compile(source, "operator.py", "exec"), {"__name__": "operator"})
    added = [v for key, versions in table.items() for v in versions if v not in before.get(key, ())]
    if not added:
        raise ValueError("this code registers no operator: use elementwise(…) or @op(…)")
    return added[-1]


def message(error: BaseException) -> str:
    """The error, and the last line of the visitor's code that it or its cause passed."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    own = [frame.lineno for frame in traceback.extract_tb(cause.__traceback__) if frame.filename == "operator.py"]
    line = cause.lineno if isinstance(cause, SyntaxError) else own[-1] if own else None
    text = str(error) if hasattr(error, "hint") else f"{type(error).__name__}: {error}"
    return f"{f'Line {line}: ' if line else ''}{text}"


def answer(source: str, inputs: list[list[int]]) -> dict[str, object]:
    try:
        operator = define(source)
        data = model(operator, inputs, 1)
        found = {"wasm": listing(data, "wasm"), "webgpu": listing(data, "webgpu")}
    except Exception as error:
        return {"error": message(error)}
    return {"operator": operator.name, "model": base64.b64encode(data).decode(), **found}


answer(args["source"], args["inputs"])  # type: ignore[name-defined]  # noqa: F821
