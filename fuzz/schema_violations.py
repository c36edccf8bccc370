"""Changes of one node that may violate its operator's schema."""

from __future__ import annotations

import numpy as np

from fuzz.draw import Draw
from fuzz.mutate_node import convert, dtype_named
from fuzz.node import Node
from fuzz.signatures import find

TYPES = """float double float16 bfloat16 int64 int32 int16 int8 int4 uint64 uint32 uint8 uint4 bool string
float8e4m3fn""".split()
NUMBERS = [0, -1, -2, 7, 2**31, 2**63 - 1, -(2**63)]
REALS = [float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 1e30]


def _arrays(node: Node) -> list[int]:
    return [n for n, x in enumerate(node.inputs) if isinstance(x, np.ndarray) and n not in node.types]


def leave_out(draw: Draw, node: Node) -> None:
    """Removes an input, even a required one; not of Loop, which may never end without its trip count."""
    node.inputs[draw.pick([n for n in _arrays(node) if node.op != "Loop"])] = None


def change_to_any_type(draw: Draw, node: Node) -> None:
    n = draw.pick(_arrays(node))
    dtype = dtype_named(f"tensor({draw.pick(TYPES)})")
    assert dtype is not None
    node.inputs[n] = convert(node.inputs[n], dtype)


def change_to_any_number(draw: Draw, node: Node) -> None:
    """Sets a number in an attribute that the schema has."""
    signature = find(node.domain, node.op, node.opset)
    kinds = {name: kind for name, (kind, _, _) in signature.attributes.items()} if signature else {}
    names = [name for name in sorted(kinds) if kinds[name] in ("INT", "INTS", "FLOAT", "FLOATS")]
    name = draw.pick(names)
    number = draw.pick(NUMBERS if kinds[name].startswith("INT") else REALS)
    if not kinds[name].endswith("S"):
        node.attributes[name] = number
        return
    numbers = list(node.attributes.get(name) or [number])
    numbers[draw.below(len(numbers))] = number
    node.attributes[name] = numbers
