"""Models that try to break readers: damaged bytes, and well-formed models with excessive demands."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import TensorProto, helper

from fuzz import suite
from fuzz.case import Case
from fuzz.draw import Draw
from fuzz.models import small


def case(draw: Draw) -> Case:
    official = suite.load()[draw.pick(small())]
    if draw.chance(0.6):
        how = draw.pick([*DAMAGES, deeper])
        return Case("hostile", how(draw, official.model), (), False, f"{official.name}: {how.__name__}")
    model = onnx.load_from_string(official.model)
    bad = draw.pick(DEMANDS)
    bad(draw, model)
    runs = (official.data[0][0],) if bad in CHEAP else ()
    return Case("hostile", model.SerializeToString(), runs, False, f"{official.name}: {bad.__name__}")


# ── bytes ──


def flip(draw: Draw, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(draw.pick([1, 1, 2, 8])):
        out[draw.below(len(out))] ^= 1 << draw.below(8)
    return bytes(out)


def overwrite(draw: Draw, data: bytes) -> bytes:
    out = bytearray(data)
    out[draw.below(len(out))] = draw.pick([0, 1, 0x7F, 0x80, 0xFF, 10, 8])
    return bytes(out)


def cut(draw: Draw, data: bytes) -> bytes:
    return data[: draw.below(len(data))]


def lengthen(draw: Draw, data: bytes) -> bytes:
    """Replaces a byte by a varint of ten bytes."""
    at = draw.below(len(data))
    return data[:at] + b"\xff" * 9 + b"\x01" + data[at + 1 :]


def repeat(draw: Draw, data: bytes) -> bytes:
    low, high = sorted((draw.below(len(data)), draw.below(len(data))))
    return data[:high] + data[low:high] + data[high:]


def remove(draw: Draw, data: bytes) -> bytes:
    low = draw.below(len(data))
    return data[:low] + data[low + draw.between(1, 16) :]


def noise(draw: Draw, data: bytes) -> bytes:
    return draw.rng.bytes(draw.below(200))


DAMAGES = [flip, flip, overwrite, cut, lengthen, repeat, remove, noise]


# ── demands on readers ──


def negative_dim(draw: Draw, model: onnx.ModelProto) -> None:
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_value = draw.pick([-1, -(2**63), 2**62, 2**31, 2**63 - 1])


def huge_weight(draw: Draw, model: onnx.ModelProto) -> None:
    weight = model.graph.initializer.add(name="huge", data_type=draw.pick([1, 7, 8, 99, 0, 22]), raw_data=b"\0" * 16)
    weight.dims.extend(draw.pick([[2**40], [2**31, 2**31], [-4], [2**62, 8], [0, 2**63 - 1], [4] * 100]))
    model.graph.node.append(helper.make_node("Identity", ["huge"], ["huge_out"]))
    model.graph.output.append(onnx.ValueInfoProto(name="huge_out"))


def external(draw: Draw, model: onnx.ModelProto) -> None:
    """A weight in a file outside the model's folder, or in none."""
    weight = model.graph.initializer.add(name="far", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    where = draw.pick(["../../../../etc/passwd", "/etc/passwd", "", ".", "a\0b", "C:\\x", "no-such-file", "x" * 5000])
    for key, value in (("location", where), ("offset", draw.pick(["0", "-1", "x", str(2**70)])), ("length", "16")):
        weight.external_data.add(key=key, value=value)
    model.graph.node.append(helper.make_node("Identity", ["far"], ["far_out"]))
    model.graph.output.append(onnx.ValueInfoProto(name="far_out"))


def cycle(draw: Draw, model: onnx.ModelProto) -> None:
    a = helper.make_node("Add", ["loop_b", "loop_b"], ["loop_a"])
    model.graph.node.extend([a, helper.make_node("Neg", ["loop_a"], ["loop_b"])])
    model.graph.output.append(onnx.ValueInfoProto(name="loop_a"))


def same_names(draw: Draw, model: onnx.ModelProto) -> None:
    """Two nodes with the same output."""
    node = model.graph.node.add()
    node.CopyFrom(draw.pick(model.graph.node))


def deep(draw: Draw, model: onnx.ModelProto) -> None:
    """Nested graphs, as deep as onnx's own reader accepts."""
    graph = _leaf("deep")
    for level in range(draw.pick([3, 10, 28])):
        name = f"deep{level}"
        node = helper.make_node("If", ["yes"], [name], then_branch=graph, else_branch=_leaf(name))
        graph = helper.make_graph([node], name, [], [onnx.ValueInfoProto(name=name)])
    model.graph.node.append(helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("", 9, [], [True])))
    model.graph.node.append(helper.make_node("If", ["yes"], ["deep"], then_branch=graph, else_branch=_leaf("deepest")))
    model.graph.output.append(onnx.ValueInfoProto(name="deep"))


def _leaf(name: str) -> onnx.GraphProto:
    node = helper.make_node("Constant", [], [name + "_"], value_int=1)
    return helper.make_graph([node], name + "_g", [], [onnx.ValueInfoProto(name=name + "_")])


def deeper(draw: Draw, data: bytes) -> bytes:
    """Nested graphs of any depth, appended as bytes: protobuf merges a repeated message, so this adds a node."""
    node = _field(4, b"Neg")
    for _ in range(draw.pick([50, 500, 5000])):
        graph = _field(1, node)
        node = _field(4, b"If") + _field(5, _field(1, b"then_branch") + _field(6, graph))
    return data + _field(7, _field(1, node))


def _field(number: int, data: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    size, length = b"", len(data)
    while length > 0x7F:
        size, length = size + bytes([length & 0x7F | 0x80]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


def functions(draw: Draw, model: onnx.ModelProto) -> None:
    """Functions that call the next one twice, or each other in a circle."""
    count = draw.pick([3, 12, 24])
    again = draw.chance(0.3)
    for level in range(count):
        inner = f"f{level + 1}" if level + 1 < count else "f0" if again else "Neg"
        domain = "" if inner == "Neg" else "fuzz"
        nodes = [
            helper.make_node(inner, ["x"], ["m"], domain=domain),
            helper.make_node(inner, ["m"], ["y"], domain=domain),
        ]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("fuzz", 1)]
        model.functions.append(helper.make_function("fuzz", f"f{level}", ["x"], ["y"], nodes, imports))
    model.opset_import.append(helper.make_opsetid("fuzz", 1))
    model.graph.node.append(helper.make_node("f0", [_some(model)], ["called"], domain="fuzz"))
    model.graph.output.append(onnx.ValueInfoProto(name="called"))


def _some(model: onnx.ModelProto) -> str:
    return model.graph.input[0].name if model.graph.input else "nothing"


def giant_attribute(draw: Draw, model: onnx.ModelProto) -> None:
    node = draw.pick(model.graph.node)
    name = draw.pick([a.name for a in node.attribute] or ["axis"])
    value = draw.pick([[1] * 100_000, 2**62, "x" * 100_000, [0.5] * 100_000])
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def many_inputs(draw: Draw, model: onnx.ModelProto) -> None:
    op, count = draw.pick(["Sum", "Max", "Concat"]), draw.pick([100, 3000])
    extra = {"axis": 0} if op == "Concat" else {}
    model.graph.node.append(helper.make_node(op, [_some(model)] * count, ["many"], **extra))
    model.graph.output.append(onnx.ValueInfoProto(name="many"))


def odd_names(draw: Draw, model: onnx.ModelProto) -> None:
    """Names with special meanings elsewhere."""
    node = draw.pick(model.graph.node)
    node.name = draw.pick(["", "\0", "../x", "a" * 10_000, "%s%n{}", "\ud7ff", "__class__"])
    node.doc_string = "x" * 10_000
    node.op_type, node.domain = draw.pick(
        [(node.op_type, ""), ("", ""), ("__init__", ""), ("Add", "nowhere"), ("%s", "")]
    )


def odd_versions(draw: Draw, model: onnx.ModelProto) -> None:
    model.ir_version = draw.pick([0, -1, 1, 3, 99, 2**63 - 1])
    for entry in model.opset_import:
        entry.version = draw.pick([0, -1, 1, 5, 99, 2**62])


def no_outputs(draw: Draw, model: onnx.ModelProto) -> None:
    draw.pick([model.graph.ClearField, model.ClearField])(
        draw.pick(["output", "node", "input", "opset_import", "graph"])
    )


def odd_types(draw: Draw, model: onnx.ModelProto) -> None:
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.elem_type = draw.pick([0, 8, 14, 15, 99, -1, 24])


def nodes_wide(draw: Draw, model: onnx.ModelProto) -> None:
    """A long chain."""
    name = _some(model)
    for n in range(draw.pick([500, 3000])):
        model.graph.node.append(helper.make_node("Neg", [name], [f"chain{n}"]))
        name = f"chain{n}"
    model.graph.output.append(onnx.ValueInfoProto(name=name))


Demand = Callable[[Draw, onnx.ModelProto], None]
DEMANDS: list[Demand] = [
    negative_dim, huge_weight, external, cycle, same_names, deep, functions, giant_attribute, many_inputs, odd_names,
    odd_versions, no_outputs, odd_types, nodes_wide,
]  # fmt: skip
CHEAP = [same_names, odd_names, odd_versions, no_outputs, odd_types, many_inputs]
