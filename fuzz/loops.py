"""Random Loops and Scans: a body of a few operators on states, slices of scanned inputs, and values from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from fuzz.case import Case
from fuzz.draw import Draw
from fuzz.node import IR, tensor

OPSET = 21
FLOATS = [TensorProto.FLOAT] * 6 + [TensorProto.DOUBLE, TensorProto.FLOAT16]
INT, BOOL = TensorProto.INT64, TensorProto.BOOL
AXES = [1, 2, 3, 4, 5, 8, 17, 64, 65]  # lengths of axes: a vector's lanes, a chunk's columns, and one more
STEPS = [1, 2, 3, 5, 9, 33]  # not 0: a stack of no steps has other dims in each runtime, where the body decides them
# The limit of a Loop: the length of a scanned input, a tensor that is fed, none (the loop ends by its condition), or a
# number of steps that no loop reaches
LIMITS = ["length"] * 3 + ["fed", "none", "far"]
LARGEST = 1500  # elements of a value
# Functions whose results stay bounded, as do their derivatives: rounding grows little over the steps.
UNARY = "Tanh Sigmoid Neg Abs Relu Sin Softsign Erf HardSigmoid Floor".split()  # the last not of half floats
BINARY = "Add Sub Mul Max Min".split()
REDUCTIONS = "ReduceSum ReduceMax ReduceMin ReduceMean".split()


@dataclass(frozen=True)
class Value:
    name: str
    shape: tuple[int, ...]
    kind: int  # the element type


class Nodes:
    """Records nodes and constants, and the values that later nodes may read."""

    def __init__(self, draw: Draw, prefix: str, float_kind: int) -> None:
        self.draw, self.prefix, self.float_kind = draw, prefix, float_kind
        self.nodes, self.weights, self.values = list[Any](), list[Any](), list[Value]()
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    def constant(self, x: Any, kind: int = INT) -> str:
        name = self.name()
        self.weights.append(tensor(np.asarray(x, helper.tensor_dtype_to_np_dtype(kind)), name))
        return name

    def number(self, x: float, kind: int) -> str:
        return self.constant(x, kind)

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], kind: int, **attributes: Any) -> Value:
        value = Value(self.name(), shape, kind)
        self.nodes.append(helper.make_node(op, inputs, [value.name], **attributes))
        self.values.append(value)
        return value

    def pick(self, *kinds: int, rank: int = 0) -> Value | None:
        """A value of one of these element types with at least `rank` axes; one that was made lately more often."""
        found = [v for v in self.values if v.kind in (kinds or (self.float_kind,)) and len(v.shape) >= rank]
        if not found:
            return None
        return self.draw.pick(found[-4:] if self.draw.chance(0.5) else found)

    # ── operators, each on values that are there ──

    def unary(self) -> None:
        if x := self.pick():
            self.add(self.draw.pick(UNARY[:-1] if x.kind == TensorProto.FLOAT16 else UNARY), [x.name], x.shape, x.kind)

    def decay(self) -> None:
        """exp of what is at most 0."""
        if x := self.pick():
            below = self.add("Neg", [self.add("Abs", [x.name], x.shape, x.kind).name], x.shape, x.kind)
            self.add("Exp", [below.name], x.shape, x.kind)

    def binary(self) -> None:
        if pair := self.broadcast():
            x, y, shape = pair
            self.add(self.draw.pick(BINARY), [x.name, y.name], shape, x.kind)

    def broadcast(self, *kinds: int) -> tuple[Value, Value, tuple[int, ...]] | None:
        """Two values of one element type that broadcast, and the shape of the result."""
        x = self.pick(*kinds)
        if x is None:
            return None
        found = [(y, shape) for y in self.values if y.kind == x.kind and (shape := joint(x.shape, y.shape)) is not None]
        y, shape = self.draw.pick(found)
        return x, y, shape

    def select(self) -> None:
        if not (pair := self.broadcast()):
            return
        x, y, shape = pair
        # Values that are equal but for rounding, or that underflow, are far from the limit.
        limit = self.add("Add", [y.name, self.number(0.3719, y.kind)], y.shape, y.kind)
        test = self.add(self.draw.pick(["Greater", "LessOrEqual"]), [x.name, limit.name], shape, BOOL)
        self.add("Where", [test.name, x.name, y.name], shape, x.kind)

    def transpose(self) -> None:
        if x := self.pick(rank=2):
            perm = [int(n) for n in self.draw.rng.permutation(len(x.shape))]
            self.add("Transpose", [x.name], tuple(x.shape[n] for n in perm), x.kind, perm=perm)

    def shift(self) -> None:
        """Moves the elements along an axis: the first ones go to the end, or zeros come in."""
        x = self.pick(rank=1)
        if x is None:
            return
        axis = self.draw.below(len(x.shape))
        if x.shape[axis] < 2:
            return
        by = self.draw.between(1, min(x.shape[axis] - 1, 3))
        rest = self.slice(x, axis, by, x.shape[axis])
        start = self.slice(x, axis, 0, by)
        parts = [rest.name, start.name] if self.draw.chance(0.7) else [start.name, rest.name]
        self.add("Concat", parts, x.shape, x.kind, axis=axis)

    def slice(self, x: Value, axis: int, start: int, end: int) -> Value:
        shape = (*x.shape[:axis], end - start, *x.shape[axis + 1 :])
        return self.add("Slice", [x.name, *(self.constant([n]) for n in (start, end, axis))], shape, x.kind)

    def flip(self) -> None:
        if x := self.pick(rank=1):
            axis = self.draw.below(len(x.shape))
            ints = [self.constant([n]) for n in (-1, -(2**31), axis, -1)]
            self.add("Slice", [x.name, *ints], x.shape, x.kind)

    def reduce(self) -> None:
        x = self.pick(rank=1)
        if x is None:
            return
        axis, kept = self.draw.below(len(x.shape)), self.draw.below(2)
        shape = (*x.shape[:axis], *([1] if kept else []), *x.shape[axis + 1 :])
        op = self.draw.pick(REDUCTIONS)
        self.add(op, [x.name, self.constant([axis])], shape, x.kind, keepdims=kept)

    def softmax(self) -> None:
        if x := self.pick(rank=1):
            self.add("Softmax", [x.name], x.shape, x.kind, axis=self.draw.below(len(x.shape)))

    def product(self) -> None:
        """A product with a new weight, or of a value with itself, transposed."""
        x = self.pick(rank=2)
        if x is None:
            return
        if self.draw.chance(0.3):
            perm = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
            turned = self.add("Transpose", [x.name], tuple(x.shape[n] for n in perm), x.kind, perm=perm)
            made = self.add("MatMul", [x.name, turned.name], (*x.shape[:-1], x.shape[-2]), x.kind)
        else:
            columns = self.draw.pick(AXES)
            weight = self.draw.rng.normal(size=(x.shape[-1], columns)) * x.shape[-1] ** -0.5
            made = self.add("MatMul", [x.name, self.constant(weight, x.kind)], (*x.shape[:-1], columns), x.kind)
        self.values.remove(made)  # long sums of half floats round to whole numbers, of which a sine is any number
        self.add("Tanh", [made.name], made.shape, x.kind)

    def outer(self) -> None:
        """A column times a row."""
        x, y = self.pick(rank=1), self.pick(rank=1)
        if x and y:
            shape = (*x.shape, y.shape[-1])
            if joint(x.shape[:-1], y.shape[:-1]) == x.shape[:-1] and np.prod(shape) <= LARGEST:
                column = self.add("Unsqueeze", [x.name, self.constant([-1])], (*x.shape, 1), x.kind)
                row = self.add("Unsqueeze", [y.name, self.constant([-2])], (*y.shape[:-1], 1, y.shape[-1]), y.kind)
                self.add("Mul", [column.name, row.name], shape, x.kind)

    def decisive(self) -> Value | None:
        """A value to choose elements by. Integers in place of half floats, which onnxruntime rounds later than ONNX."""
        return self.pick(INT if self.float_kind == TensorProto.FLOAT16 else self.float_kind, rank=1)

    def whole(self, x: Value) -> Value:
        """Whole numbers, whose order rounding rarely decides: Tanh of many large numbers is nearly 1. They are used for
        nothing else: a sine of a number that rounding decides is any number."""
        if x.kind == INT:
            return x
        scaled = self.add("Mul", [x.name, self.number(14.3, x.kind)], x.shape, x.kind)
        whole = self.add("Round", [scaled.name], x.shape, x.kind)
        del self.values[-2:]
        return whole

    def largest(self) -> None:
        """The index of the largest element, which gathers the rows of a table."""
        x = self.decisive()
        if x is None:
            return
        index = self.add("ArgMax", [self.whole(x).name], x.shape[:-1], INT, axis=-1, keepdims=0)
        width = self.draw.pick(AXES)
        if np.prod(index.shape) * width <= LARGEST:
            table = self.constant(self.draw.rng.normal(size=(x.shape[-1], width)), self.float_kind)
            self.add("Gather", [table, index.name], (*index.shape, width), self.float_kind, axis=0)

    def procedure(self) -> None:
        """A running sum, a sort, or a scatter of one element of each row: procedures in the body."""
        what = self.draw.pick(["CumSum", "TopK", "ScatterElements"])
        x = self.pick(rank=1) if what == "CumSum" else self.decisive()
        if x is None or not x.shape[-1]:
            return
        if what == "CumSum":
            made = self.add(what, [x.name, self.constant(-1)], x.shape, x.kind, reverse=self.draw.below(2))
            self.add("Tanh", [made.name], x.shape, x.kind)
        elif what == "TopK":
            count = self.draw.between(1, x.shape[-1])
            shape = (*x.shape[:-1], count)
            made = self.add(what, [self.whole(x).name, self.constant([count])], shape, x.kind, axis=-1)
            self.values.remove(made)
            places = Value(self.name(), shape, INT)
            self.nodes[-1].output.append(places.name)
            self.values.append(places)
            self.add("GatherElements", [x.name, places.name], shape, x.kind, axis=-1)
        else:
            shape = (*x.shape[:-1], 1)
            place = self.add("ArgMax", [self.whole(x).name], shape, INT, axis=-1, keepdims=1)
            new = self.slice(x, len(x.shape) - 1, 0, 1)
            self.add(what, [x.name, place.name, new.name], x.shape, x.kind, axis=-1)

    def integers(self) -> None:
        if pair := self.broadcast(INT):
            x, y, shape = pair
            total = self.add(self.draw.pick(BINARY), [x.name, y.name], shape, INT)
            self.add("Mod", [total.name, self.number(7, INT)], shape, INT)

    def cast(self) -> None:
        x = self.pick(INT, BOOL)
        if x and self.draw.chance(0.6):
            made = self.add("Cast", [x.name], x.shape, self.float_kind, to=self.float_kind)
            self.add("Mul", [made.name, self.number(0.125, self.float_kind)], x.shape, self.float_kind)
        elif (x := self.pick()) and x.kind != TensorProto.FLOAT16:  # whose rounding decides about whole numbers
            floor = self.add("Floor", [self.add("Sin", [x.name], x.shape, x.kind).name], x.shape, x.kind)
            self.add("Cast", [floor.name], x.shape, INT, to=INT)

    def logic(self) -> None:
        if pair := self.broadcast(BOOL):
            x, y, shape = pair
            self.add(self.draw.pick(["And", "Or", "Xor"]), [x.name, y.name], shape, BOOL)

    def branch(self) -> None:
        """An If on one element, whose branches read values of the body."""
        if not (x := self.pick()):
            return
        flat = self.add("Reshape", [x.name, self.constant([-1])], (int(np.prod(x.shape)),), x.kind)
        if not flat.shape[0]:
            return
        first = self.add("Gather", [flat.name, self.constant(0)], (), x.kind, axis=0)
        test = self.add("Greater", [first.name, self.number(0.1, x.kind)], (), BOOL)
        sides = []
        for side in ("yes", "no"):
            inner = Nodes(self.draw, f"{self.name()}_{side}_", self.float_kind)
            made = inner.add(self.draw.pick(UNARY), [x.name], x.shape, x.kind)
            if self.draw.chance(0.5):
                made = inner.add("Mul", [made.name, inner.number(0.5, x.kind)], x.shape, x.kind)
            if x.shape and self.draw.chance(0.3):
                made = inner.add("Softmax", [made.name], x.shape, x.kind, axis=self.draw.below(len(x.shape)))
            out = onnx.ValueInfoProto(name=made.name)
            out.type.tensor_type.elem_type = x.kind
            sides.append(helper.make_graph(inner.nodes, side, [], [out], inner.weights))
        self.add("If", [test.name], x.shape, x.kind, then_branch=sides[0], else_branch=sides[1])

    def fitted(self, shape: tuple[int, ...], kind: int) -> Value:
        """A value of this shape and type, to be a state's next one: a value that is there, or a sum with one."""
        same = [v for v in self.values if v.shape == shape and v.kind == kind]
        near = [v for v in self.values if v.kind == kind and joint(v.shape, shape) == shape]
        if len(same) > 1 and self.draw.chance(0.7):
            last = self.draw.pick(same[-3:])
        else:
            x, y = self.draw.pick(same), self.draw.pick(near)
            last = self.add("Xor" if kind == BOOL else "Add", [x.name, y.name], shape, kind)
        if kind == INT:
            return self.add("Mod", [last.name, self.number(13, INT)], shape, INT)
        if kind != BOOL and self.draw.chance(0.7):  # else it may grow from step to step
            return self.add("Tanh", [last.name], shape, kind)
        return last


OPERATORS: list[tuple[int, Callable[[Nodes], None]]] = [
    (4, Nodes.unary), (6, Nodes.binary), (1, Nodes.decay), (2, Nodes.select), (2, Nodes.transpose), (2, Nodes.shift),
    (1, Nodes.flip), (3, Nodes.reduce), (1, Nodes.softmax), (2, Nodes.product), (2, Nodes.outer), (1, Nodes.largest),
    (1, Nodes.procedure), (1, Nodes.integers), (1, Nodes.cast), (1, Nodes.logic), (1, Nodes.branch),
]  # fmt: skip
WEIGHTED = [operator for weight, operator in OPERATORS for _ in range(weight)]


def joint(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that two shapes broadcast to, None if they do not or if it is too large."""
    try:
        shape = np.broadcast_shapes(a, b)
    except ValueError:
        return None
    return shape if np.prod(shape) <= LARGEST else None


@dataclass
class Recurrence:
    """What a Loop or Scan reads.

    axes: of each scanned input the axis along which the steps advance, in a Loop the first
    limit: how a Loop gets its number of steps (LIMITS); start: whether it has a condition before the first step"""

    states: list[Value]
    scanned: list[Value]  # shapes without the axis of the steps
    axes: list[int]
    outside: list[Value]
    limit: str = ""
    start: bool = False


def case(draw: Draw) -> Case:
    """A model of one Loop or Scan, run at one or several numbers of steps."""
    return _case(draw, "loops", draw.pick(FLOATS), 3)


def gradients(draw: Draw) -> Case:
    """A model in double, whose gradients are compared with differences, with and without chunks of steps."""
    return _case(draw, "gradients", TensorProto.DOUBLE, 1)


def _case(draw: Draw, target: str, kind: int, runs_if_symbolic: int) -> Case:
    scan = draw.chance(0.5)
    sizes = [draw.pick(AXES) for _ in range(3)]  # few, so that values fit each other
    found = _values(draw, kind, sizes, scan)
    body = Nodes(draw, "b", kind)
    body.values = [*found.outside, *found.states, *(_slice(v) for v in found.scanned)]
    going = [] if scan else _start_of_turn(body, found)
    for _ in range(draw.between(2, 9)):
        draw.pick(WEIGHTED)(body)
    new = [body.fitted(s.shape, s.kind) for s in found.states]
    if len(new) > 1 and new[0].shape == new[1].shape and new[0].kind == new[1].kind and draw.chance(0.3):
        new[:2] = new[1], new[0]
    outs = [body.pick(kind, INT, BOOL) for _ in range(draw.below(3))]
    stacked = [v for v in outs if v is not None]
    symbolic = draw.chance(0.6)
    runs = [_feeds(draw, found, draw.pick(STEPS)) for _ in range(runs_if_symbolic if symbolic else 1)]
    for feeds in runs if found.start else ():
        feeds["go"] = np.asarray(bool(stacked) or draw.chance(0.8))
    model = _model(draw, body, found, (going, new, stacked), "T" if symbolic else _steps(runs[0], found))
    what = "Scan" if scan else "Loop"
    return Case(target, model.SerializeToString(), tuple(runs), note=f"{what} of {len(body.nodes)} nodes")


def _values(draw: Draw, kind: int, sizes: list[int], scan: bool) -> Recurrence:
    def shape(rank: int) -> tuple[int, ...]:
        dims: list[int] = []
        for _ in range(rank):
            dim = draw.pick(sizes)
            dims.append(dim if np.prod([*dims, dim]) <= LARGEST else 1)
        return tuple(dims)

    kinds = [kind] * 5 + [INT, BOOL]
    first = Value("s0_in", shape(draw.pick([1, 2, 2, 3])), kind)
    states = [first]
    for n in range(1, draw.pick([1, 1, 2, 3])):
        own = shape(draw.below(4))
        states.append(Value(f"s{n}_in", first.shape if draw.chance(0.5) else own, draw.pick(kinds)))
    scanned = [Value(f"x{n}", shape(draw.below(3)), draw.pick(kinds)) for n in range(draw.pick([1, 1, 2, 3]))]
    axes = [draw.below(len(v.shape) + 1) if scan and draw.chance(0.3) else 0 for v in scanned]
    outside = [Value(f"w{n}", shape(draw.below(3)), kind) for n in range(draw.below(3))]
    limit = "" if scan else draw.pick(LIMITS)
    return Recurrence(states, scanned, axes, outside, limit, not scan and draw.chance(0.3))


def _slice(scanned: Value) -> Value:
    return Value(f"{scanned.name}_t", scanned.shape, scanned.kind)


def _start_of_turn(body: Nodes, found: Recurrence) -> list[str]:
    """Nodes that gather a Loop's slices; the name of the condition to go on."""
    draw = body.draw
    for x in found.scanned:
        index = "turn"
        if draw.chance(0.3):  # backwards
            body.nodes.append(helper.make_node("Sub", ["last", "turn"], [index := body.name()]))
        body.nodes.append(helper.make_node("Gather", [x.name, index], [_slice(x).name], axis=0))
    if draw.chance(0.5):
        body.nodes.append(helper.make_node("Identity", ["going"], ["going_on"]))
    elif draw.chance(0.5) and (x := body.pick(INT)):
        axes = [] if not x.shape else [body.constant(list(range(len(x.shape))))]
        largest = body.add("ReduceMax", [x.name, *axes], (), INT, keepdims=0)
        body.nodes.append(helper.make_node("Less", [largest.name, "limit"], ["going_on"]))
    else:
        body.nodes.append(helper.make_node("Less", ["turn", "limit"], ["going_on"]))
    if found.limit in ("none", "far"):
        own = body.nodes[-1].output[0] = body.name()
        inside = body.add("Less", ["turn", "last"], (), BOOL)
        body.nodes.append(helper.make_node("And", [own, inside.name], ["going_on"]))
    if draw.chance(0.3):
        body.values.append(Value("turn", (), INT))
    return ["going_on"]


def _feeds(draw: Draw, found: Recurrence, steps: int) -> dict[str, Any]:
    def array(value: Value, shape: tuple[int, ...]) -> np.ndarray:
        dtype = helper.tensor_dtype_to_np_dtype(value.kind)
        if value.kind in (INT, BOOL):
            return draw.array(dtype, shape, 0)
        return draw.rng.normal(size=shape).astype(dtype)

    feeds = {s.name.removesuffix("_in"): array(s, s.shape) for s in found.states}
    feeds |= {w.name: array(w, w.shape) for w in found.outside}
    for x, axis in zip(found.scanned, found.axes, strict=True):
        feeds[x.name] = array(x, (*x.shape[:axis], steps, *x.shape[axis:]))
    if found.limit == "fed":
        feeds["trip"] = np.asarray(draw.between(min(steps, 2), steps), np.int64)
    return feeds


def _steps(feeds: dict[str, Any], found: Recurrence) -> int:
    return int(feeds[found.scanned[0].name].shape[found.axes[0]])


def _model(
    draw: Draw, body: Nodes, found: Recurrence, made: tuple[list[str], list[Value], list[Value]], steps: int | str
) -> onnx.ModelProto:  # fmt: skip
    going, new, stacked = made
    names = [body.add("Identity", [v.name], v.shape, v.kind) for v in (*new, *stacked)]
    ranked = draw.chance(0.6)
    outputs = [info(v.name, v.shape if ranked else None, v.kind) for v in names]
    states = [info(s.name, s.shape if ranked else None, s.kind) for s in found.states]
    final = [f"s{n}_out" for n in range(len(new))]
    stacks = [f"y{n}" for n in range(len(stacked))]
    fed = [s.name.removesuffix("_in") for s in found.states]
    outer, joins = Nodes(draw, "m", body.float_kind), list[Any]()
    if going:
        shape = outer.add("Shape", [found.scanned[0].name], (1,), INT, start=0, end=1)
        count = outer.add("Squeeze", [shape.name], (), INT)
        outer.nodes.append(helper.make_node("Sub", [count.name, outer.constant(1)], ["last"]))
        limit = np.asarray(draw.pick([0, 1, 2, 6, 40]), np.int64)
        outer.weights.append(tensor(limit, "limit"))
        inputs = [info("turn", (), INT), info("going", (), BOOL), *states]
        inner = helper.make_graph(body.nodes, "body", inputs, [info("going_on", (), BOOL), *outputs], body.weights)
        limits = {"length": count.name, "fed": "trip", "none": "", "far": outer.constant(2**62)}
        given = [limits[found.limit], "go" if found.start else "", *fed]
        node = helper.make_node("Loop", given, [*final, *stacks], body=inner)
        if stacks and draw.chance(0.3):
            joins = [_as_list(outer, node, stacked[-1].kind)]
    else:
        slices = [info(_slice(x).name, x.shape if ranked else None, x.kind) for x in found.scanned]
        inner = helper.make_graph(body.nodes, "body", [*states, *slices], outputs, body.weights)
        given = [*fed, *(x.name for x in found.scanned)]
        node = helper.make_node("Scan", given, [*final, *stacks], body=inner, **_scan(draw, found, stacked))
    results = [onnx.ValueInfoProto(name=n) for n in (*final, *stacks)]
    graph = helper.make_graph([*outer.nodes, node, *joins], "g", _inputs(found, steps), results, outer.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


def _as_list(outer: Nodes, loop: onnx.NodeProto, kind: int) -> onnx.NodeProto:
    """Make a Loop append the rows of its last stack to a list, which it carries, and join the items after it."""
    body = loop.attribute[0].g
    item, stack, states = body.output.pop(), loop.output.pop(), len(body.input) - 2
    for name, values in (("list", body.input), ("longer", body.output)):
        sequence = helper.make_tensor_sequence_value_info(name, kind, None)
        values.insert(states + (2 if name == "list" else 1), sequence)
    body.node.append(helper.make_node("SequenceInsert", ["list", item.name], ["longer"]))
    outer.nodes.append(helper.make_node("SequenceEmpty", [], ["empty"], dtype=kind))
    loop.input.append("empty")
    loop.output.insert(states, "whole_list")
    return helper.make_node("ConcatFromSequence", ["whole_list"], [stack], axis=0, new_axis=1)


def _scan(draw: Draw, found: Recurrence, stacked: list[Value]) -> dict[str, Any]:
    """The attributes of a Scan: axes and directions of what it reads and stacks."""
    made: dict[str, Any] = {"num_scan_inputs": len(found.scanned)}
    if any(found.axes):
        made["scan_input_axes"] = found.axes
    if draw.chance(0.3):
        made["scan_input_directions"] = [draw.below(2) for _ in found.scanned]
    if stacked and draw.chance(0.3):
        made["scan_output_directions"] = [draw.below(2) for _ in stacked]
    if stacked and draw.chance(0.3):
        made["scan_output_axes"] = [draw.below(len(v.shape) + 1) for v in stacked]
    return made


def _inputs(found: Recurrence, steps: int | str) -> list[onnx.ValueInfoProto]:
    values = [info(s.name.removesuffix("_in"), s.shape, s.kind) for s in found.states]
    values += [info(w.name, w.shape, w.kind) for w in found.outside]
    for x, axis in zip(found.scanned, found.axes, strict=True):
        values.append(info(x.name, (*x.shape[:axis], steps, *x.shape[axis:]), x.kind))
    values += [info("trip", (), INT)] if found.limit == "fed" else []
    return values + ([info("go", (), BOOL)] if found.start else [])


def info(name: str, shape: tuple[int | str, ...] | None, kind: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)
