"""Lowers a graph to kernels: calls the lowering of each node's operator, in order, on a Tracer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyruntime.errors import InvalidModel, NeedsValue, PyRuntimeError, ShapeError, our_fault
from pyruntime.frontend import registry
from pyruntime.frontend.budget import Budget
from pyruntime.frontend.operator_ranks import check_ranks
from pyruntime.frontend.packed_weights import elements_of, weight_leaf
from pyruntime.frontend.requirements import Guard
from pyruntime.frontend.sequences import NOTHING, SequenceValue, items_of
from pyruntime.frontend.signatures import check_attributes, check_inputs, check_result, signature
from pyruntime.frontend.tracer import Tracer
from pyruntime.frontend.whole_nodes import TakesNode, whole_node
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import DType
from pyruntime.ir.expr import MixedTypes
from pyruntime.ir.kernel import Block, Tensor
from pyruntime.ir.room import Room
from pyruntime.ir.shape import Undecided
from pyruntime.ir.symbol import AXIS, DIM, Symbol, input_path
from pyruntime.onnx.graph import (
    AttrRef,
    Function,
    Graph,
    Node,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    Value,
    Weight,
    tensor_type,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor feed. dims: ints, names of dims, or None (a symbol of its own); value: elements for which the Program is
    compiled, or None."""

    dtype: DType
    dims: tuple[int | str | None, ...]
    value: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    items: tuple[Any, ...]
    dtype: DType | None = None


Spec = TensorSpec | SequenceSpec | None  # None: an empty optional


Path = tuple[str, *tuple[int, ...]]  # an input's name, and the item's number if it is a sequence


@dataclass(slots=True)
class Feed:
    """One tensor that a run passes in. tensor: the whole buffer if the buffer has capacity for more (room)."""

    path: Path
    tensor: Tensor
    spec: TensorSpec
    room: Room | None = None


@dataclass(slots=True)
class TracedGraph:
    """The result of tracing.

    outputs: the value of each graph output (Tensor, SequenceValue or NOTHING)
    values: all values of the main graph by name
    known: uids of tensors whose elements are known at compile time
    rooms: by uid, outputs whose buffers have capacity for more
    tracer: records more kernels into the block
    updates: by uid, for outputs, the states that a run which asks for them has changed
    """

    block: Block
    feeds: list[Feed]
    outputs: dict[str, Any]
    guards: list[Guard] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    rooms: dict[int, Room] = field(default_factory=dict)
    tracer: Tracer | None = None
    updates: dict[int, list[Tensor]] = field(default_factory=dict)


def declared_specs(inputs: Sequence[Value]) -> dict[str, Spec] | None:
    """The element type and shape of each input as the model declares them; None if an input is no tensor, or declares
    no element type or no rank."""
    specs: dict[str, Spec] = {}
    for v in inputs:
        if not (isinstance(v.type, TensorType) and v.type.dtype is not None and v.type.shape is not None):
            return None
        specs[v.name] = TensorSpec(v.type.dtype, v.type.shape)
    return specs


def trace_graph(
    graph: Graph,
    specs: Mapping[str, Spec],
    elements: Callable[[Weight], list[Any]],
    constants: Mapping[str, TensorSpec],
    budget: Budget | None = None,
    takes_node: TakesNode | None = None,
    products: bool = False,
) -> TracedGraph:
    """Trace a graph for feeds of these specs. constants: inner values that the session has computed; takes_node: asks
    whether a provider runs a whole node; products: see `CodeWriter`."""
    t = Tracer(elements)
    t.products = products
    t.differentiates = any(n.op in ("Gradient", "Step") for n in graph.nodes)
    feeds: list[Feed] = []
    env: dict[str, Any] = {}
    for v in graph.inputs:
        if v.name in specs:
            env[v.name] = _feed(t, (v.name,), specs[v.name], feeds, v.type)
            if isinstance(env[v.name], Tensor):
                t.names[env[v.name].uid] = v.name
        elif isinstance(v.type, OptionalType):
            env[v.name] = NOTHING
        elif v.name not in graph.weights:
            raise InvalidModel(f'input "{v.name}" has no type')
    tracer = _GraphTracer(t, graph, constants, budget or Budget(), None if t.differentiates else takes_node)
    t.subgraph, t.named = tracer.subgraph, tracer.value
    named = dict(zip([o.name for o in graph.outputs], tracer.graph(graph, env), strict=True))
    for name, x in named.items():
        if isinstance(x, SequenceValue):
            named[name] = SequenceValue(items_of(t, x, f'the output "{name}"'), x.dtype)
    return TracedGraph(
        t.block, feeds, named, t.guards, env, t.known_tensors(), tracer=t, updates=t.updates
    )  # fmt: skip


def made_outputs(graph: Graph, found: Mapping[str, Any]) -> tuple[tuple[Value, ...], list[str]]:
    """The graph's outputs with inferred shapes where the model declares less, or declares something impossible (as
    onnxruntime does); and a sentence for each impossible declaration. found: their values, by name"""
    types = [tensor_type(v.type) for v in graph.inputs]
    names = {d for t in types if t is not None for d in t.shape or () if isinstance(d, str)}
    outputs: list[Value] = []
    remarks: list[str] = []
    for value in graph.outputs:
        made, kind = found[value.name], value.type or TensorType(None, None)
        if isinstance(made, Tensor) and isinstance(kind, TensorType):
            dims = tuple(d if isinstance(d, int) else str(d) if str(d) in names else None for d in made.shape)
            if kind.shape is not None and not _may_be(kind.shape, made):
                said, done = (", ".join("?" if d is None else str(d) for d in s) for s in (kind.shape, made.shape))
                remarks.append(f'output "{value.name}" is declared [{said}], its nodes make [{done}]')
            elif kind.shape is not None:
                pairs = zip(kind.shape, dims, strict=True)
                dims = tuple(a if isinstance(a, int) or (a and not isinstance(b, int)) else b for a, b in pairs)
            value = replace(value, type=TensorType(kind.dtype or made.dtype, dims))
        outputs.append(value)
    return tuple(outputs), remarks


def _may_be(said: Sequence[int | str | None], made: Tensor) -> bool:
    pairs = zip(said, made.shape, strict=False)
    return len(said) == made.rank and not any(isinstance(d, int) and sh.compare("eq", d, n) == 0 for d, n in pairs)


def symbolic_dims(path: Path, spec: TensorSpec) -> list[int | Symbol]:
    """The dims of a feed, with a symbol for each unknown one."""
    name, *items = path
    return [
        d if isinstance(d, int) else Symbol(DIM, d) if d else Symbol(AXIS, name, (*items, axis))
        for axis, d in enumerate(spec.dims)
    ]


def fix_dims(path: Path, spec: TensorSpec, shape: Sequence[int], fixed: set[Symbol]) -> TensorSpec:
    """The spec with the extents of `shape` for the dims in `fixed`."""
    dims = zip(symbolic_dims(path, spec), spec.dims, shape, strict=True)
    return replace(spec, dims=tuple(n if symbol in fixed else d for symbol, d, n in dims))


def _feed(t: Tracer, path: Path, spec: Spec, feeds: list[Feed], type_: Type | None = None) -> Any:
    if spec is None:
        return NOTHING
    if isinstance(spec, SequenceSpec):
        items = [_feed(t, (*path, n), s, feeds) for n, s in enumerate(spec.items)]
        return SequenceValue(tuple(items), spec.dtype or _element_type(type_))
    name = input_path(*path)
    if spec.value is not None:
        tensor = t.constant(spec.value, spec.dtype, [d for d in spec.dims if isinstance(d, int)])
        tensor.name = name
        return tensor
    dims = [d if isinstance(d, int) else sh.dim_of(d) for d in symbolic_dims(path, spec)]
    tensor = t.leaf("feed", dims, spec.dtype, path, name=name)
    feeds.append(Feed(path, tensor, spec))
    return tensor


def _element_type(type_: Type | None) -> DType | None:
    """The element type inside sequences and optionals; None if unknown."""
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.elem
    return type_.dtype if isinstance(type_, TensorType) else None


class _GraphTracer:
    def __init__(
        self, t: Tracer, root: Graph, constants: Mapping[str, TensorSpec], budget: Budget, takes_node: TakesNode | None
    ) -> None:
        self.t = t
        self.takes_node = takes_node
        self.root = root
        self.constants = constants
        self.budget = budget
        self.scopes: list[dict[str, Any]] = []
        self.weights: dict[int, Tensor] = {}  # a graph that is traced twice has one leaf for each weight

    def subgraph(self, graph: Graph, args: Sequence[Any]) -> list[Any]:
        """Record a nested graph into the current block. It sees outer names."""
        return self.graph(graph, dict(zip([v.name for v in graph.inputs], args, strict=False)))

    def graph(self, graph: Graph, env: dict[str, Any]) -> list[Any]:
        for name, w in graph.weights.items():
            if name not in env:
                if id(w) not in self.weights:
                    self.weights[id(w)] = weight_leaf(self.t, w, name)
                env[name] = elements_of(self.t, self.weights[id(w)], w)
        return self._run(graph.nodes, env, [v.name for v in graph.outputs])

    def _run(self, nodes: Sequence[Node], env: dict[str, Any], outputs: Sequence[str]) -> list[Any]:
        self.scopes.append(env)
        try:
            for node in nodes:
                self._node(node)
            return [self.value(name, "graph output") for name in outputs]
        finally:
            self.scopes.pop()

    def value(self, name: str, where: str = "") -> Any:
        """The value with a name in the graph that is being traced, or in those around it."""
        if not name:
            return None
        for scope in reversed(self.scopes):
            if scope is _SCOPE_BARRIER:
                break
            if name in scope:
                return scope[name]
        raise InvalidModel(f'value "{name}" is not defined', node=where)

    def _node(self, node: Node) -> None:
        own = node.label
        args = [self.value(name, own) for name in node.inputs]
        label, opset, wanted = self.t.node, self.t.opset, self.t.wanted
        function = self.root.functions.get((node.domain, node.op, node.overload))
        try:
            self.t.node = f"{label} > {own}" if label and function else own
            self.budget.check("tracing the node", self.t.node)
            with our_fault("tracing it", self.t.node):
                results = self._function(function, node, args) if function else self._operator(node, own, args)
        except PyRuntimeError as e:
            if isinstance(e, ShapeError) and e.at(self.t.node).node == self.t.node:
                e.hint = e.hint or _shapes(node, args)
            raise e.at(self.t.node) from e.__cause__
        finally:
            self.t.node, self.t.opset, self.t.wanted = label, opset, wanted
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                self._define(name, result)

    def _define(self, name: str, result: Any) -> None:
        if name in self.constants and len(self.scopes) == 1:
            spec = self.constants[name]
            result = self.t.constant(spec.value or (), spec.dtype, spec.dims)  # type: ignore[arg-type]
        if isinstance(result, Tensor):
            result.name = result.name or name
            if len(self.scopes) == 1:
                self.t.names.setdefault(result.uid, name)
        self.scopes[-1][name] = result

    def _operator(self, node: Node, label: str, args: list[Any]) -> Sequence[Any]:
        operator = registry.find(node.domain, node.op, node.opset, label)
        imported = self.root.opsets.get(node.domain, node.opset)
        if imported != node.opset and registry.find(node.domain, node.op, imported, label) is not operator:
            # a function imports another opset: the standard forbids it, onnxruntime uses the model's opset
            raise InvalidModel(f"has another definition at the model's opset {imported}", node=label)
        while args and args[-1] is None:
            args.pop()
        attrs = {k: v for k, v in node.attrs.items() if k != "consumed_inputs"}  # opset 1's hint on memory
        found = signature(node.domain, node.op, node.opset)
        if found is not None:
            check_inputs(found, node.inputs, args, len(node.outputs), label)
        registry.check(operator, args, attrs, label)
        registry.check_kinds(operator, attrs, label)
        check_ranks(f"{node.domain}.{node.op}".lstrip("."), node.inputs, args, label)
        if found is not None or node.domain == "com.microsoft":
            check_attributes(attrs, label, node.op)
        self.t.opset = node.opset
        self.t.wanted = tuple(bool(name) for name in node.outputs)
        first = len(self.t.block.kernels)
        try:
            results = operator.lower(self.t, *args, **{**operator.schema.floats, **attrs})
        except Undecided as e:
            if e.symbols and all(s.is_extent for s in e.symbols):
                raise NeedsValue("", node=label, symbols=e.symbols) from None
            hint = "if the operator is yours, compare dims with compare and select of pyruntime.ir.shape, not with if"
            raise self.t.unsupported(e.message, hint) from e
        except MixedTypes as e:
            # onnxruntime's schemas leave many types independent, so the model may be valid
            if found is not None and node.domain != "com.microsoft":
                raise
            raise InvalidModel(f"the types of inputs do not fit together: {e}", node=label) from None
        results = results if isinstance(results, (tuple, list)) else (results,)
        if found is not None and results:
            check_result(found, results[0], label)
        if self.takes_node is not None:
            return whole_node(self.t, first, node, args, results, self.takes_node)
        return results

    def _function(self, function: Function, node: Node, args: list[Any]) -> Sequence[Any]:
        attrs = {**function.defaults, **node.attrs}
        nodes = [_bind(n, attrs) for n in function.nodes]
        padded = [*args, *[None] * (len(function.inputs) - len(args))]
        outer, self.scopes = self.scopes, [_SCOPE_BARRIER]
        try:
            return self._run(nodes, dict(zip(function.inputs, padded, strict=False)), function.outputs)
        finally:
            self.scopes = outer


def _shapes(node: Node, args: Sequence[Any]) -> str:
    """Operands for messages about shapes: `x [2, 3], w [N, 5]`; "" if dims are expressions too long to help."""
    named = [(n, a) for n, a in zip(node.inputs, args, strict=False) if isinstance(a, Tensor)]
    text = ", ".join(f"{name} [{', '.join(map(str, x.shape))}]" for name, x in named)
    return text if len(text) <= 200 else ""


_SCOPE_BARRIER: dict[str, Any] = {}  # a function's body does not see its caller's names


def _bind(node: Node, attrs: Mapping[str, object]) -> Node:
    """Replace references to attributes by the caller's values. A reference to an absent attribute is removed."""
    bound: dict[str, object] = {}
    for name, v in node.attrs.items():
        if isinstance(v, AttrRef):
            if v.name in attrs:
                bound[name] = attrs[v.name]
        elif isinstance(v, Graph):
            bound[name] = replace(v, nodes=tuple(_bind(n, attrs) for n in v.nodes))
        else:
            bound[name] = v
    return replace(node, attrs=bound)
