"""Where adapters can stand in a graph: products and convolutions with a constant weight, and the names that users and
files call them.

A module is the part of a network that an adapter belongs to, as PEFT names it: `model.layers.0.self_attn.q_proj`.
Exporters write it into the names of weights (`….q_proj.weight`) or of nodes (`/model/layers.0/…/q_proj/MatMul`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import BF16, F16, F32, F64, DType
from pyruntime.onnx.graph import Graph, Node, Weight, subgraphs, uses
from pyruntime.runtime.adapter_places import is_kind, module_parts, name_parts, plain_parts

MICROSOFT = "com.microsoft"
OUTPUT, WEIGHT = "output", "weight"  # what an adapter's product is added to: (x·A)·B to the output, A·B to the weight
_FLOATS = (F16, BF16, F32, F64)
# Operators with a weight as input 1, by (domain, operator). Those whose result is no longer linear in the weight get
# the product of A and B added to the weight itself.
_PRODUCTS = {
    ("", "MatMul"): OUTPUT,
    ("", "Gemm"): OUTPUT,
    (MICROSOFT, "FusedMatMul"): OUTPUT,
    (MICROSOFT, "DynamicQuantizeMatMul"): OUTPUT,
    (MICROSOFT, "MatMulNBits"): OUTPUT,
    (MICROSOFT, "MatMulBnb4"): OUTPUT,
    (MICROSOFT, "FusedGemm"): WEIGHT,
    (MICROSOFT, "Attention"): WEIGHT,
    ("", "Conv"): WEIGHT,
}
_PACKED = ("MatMulNBits", "MatMulBnb4")
_DECODERS = ("DequantizeLinear", "Unpack", "PairsApart")  # nodes whose first input has the weight in another form
# projections that exporters fuse into one product: the parts in the order of the product's columns
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "qkv": ("q", "k", "v"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}


@dataclass(frozen=True, slots=True)
class Site:
    """A product with a constant weight.

    path: where the node is: its index in the main graph. In the graph of a branch or a loop: the index of the node that
        contains the graph, the number of the graph in that node, then the index in it
    module: the name of the part of the network, as PEFT writes it; names: all names that patterns may match
    fan_in, fan_out: lengths of a row of the input and of the output; of a convolution: numbers of one filter, filters
    window: of a convolution, the shape of one filter (channels, *kernel); else ()
    weight: name of the initializer, or ""; is_transposed: whether it has shape (fan_out, fan_in)
    is_plain: whether the weight is of floats, in an initializer of the main graph
    dtype: of the input's elements, as far as weights tell; way: OUTPUT or WEIGHT
    """

    path: tuple[int, ...]
    node: Node
    module: str
    names: tuple[str, ...]
    fan_in: int
    fan_out: int
    weight: str
    is_transposed: bool
    is_plain: bool
    dtype: DType
    way: str
    window: tuple[int, ...] = ()

    @property
    def factor(self) -> float:
        """Gemm's alpha: the node multiplies its own product by it, but not (x·A)·B, which is added later."""
        alpha = self.node.attrs.get("alpha", 1.0)
        return alpha if self.way == OUTPUT and isinstance(alpha, float) else 1.0

    def shapes(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of A and B, as PEFT has them: for a convolution, A has its windows, and B windows of one number."""
        return (rank, *(self.window or (self.fan_in,))), (self.fan_out, rank, *(1 for _ in self.window[1:]))


def for_dora(site: Site) -> Site:
    """The site with its adapter in the weight. Errors: InvalidInput"""
    if not site.is_plain:
        text = f"DoRA cannot scale the weight of {site.node.label}: it is no initializer of floats of the main graph"
        raise InvalidInput(text, hint="name other targets, or train LoRA without dora")
    return replace(site, way=WEIGHT)


def sites(graph: Graph) -> list[Site]:
    """All products with a constant weight, in the main graph and in those of branches and loops."""
    return list(_sites(graph, (), dict(graph.weights), {}, graph.weights))


def _sites(
    graph: Graph, path: tuple[int, ...], weights: Mapping[str, Weight], makers: Mapping[str, Node],
    outer: Mapping[str, Weight],
) -> Iterator[Site]:  # fmt: skip
    """weights, makers: initializers, and nodes by the names of their outputs, in scope; outer: of the main graph"""
    weights = {**weights, **graph.weights}
    makers = {**makers, **{name: node for node in graph.nodes for name in node.outputs}}
    fed = {v.name for v in graph.inputs}
    for n, node in enumerate(graph.nodes):
        if (found := _site(node, (*path, n), weights, makers, outer)) and found.weight not in fed:
            yield found
        for k, inner in enumerate(subgraphs(node)):
            yield from _sites(inner, (*path, n, k), weights, makers, outer)


def _site(
    node: Node, path: tuple[int, ...], weights: Mapping[str, Weight], makers: Mapping[str, Node],
    outer: Mapping[str, Weight],
) -> Site | None:  # fmt: skip
    way = _PRODUCTS.get((node.domain, node.op))
    if way is None or len(node.inputs) < 2 or node.attrs.get("transA") or node.attrs.get("transBatchB"):
        return None
    if node.attrs.get("group", 1) != 1:
        return None
    found = _weight(node.inputs[1], weights, makers)
    if found is None:
        return None
    w, flipped, is_plain = found
    dtype = w.dtype if w.dtype in _FLOATS else F32
    if node.op in _PACKED:
        scales = weights.get(node.inputs[2]) if len(node.inputs) > 2 else None
        dtype = scales.dtype if scales is not None and scales.dtype in _FLOATS else F32
        shape, flipped, is_plain = (_count(node, "N"), _count(node, "K")), True, False
    elif node.op == "Conv" and len(w.shape) > 2 and not flipped:
        shape, flipped = (w.shape[0], prod(w.shape[1:])), True
    else:
        if len(w.shape) != 2:
            return None
        shape, flipped = w.shape, flipped != bool(node.attrs.get("transB"))
    if way is WEIGHT and not is_plain:
        return None
    fan_in, fan_out = (shape[1], shape[0]) if flipped else (shape[0], shape[1])
    names = _names(node, w)
    is_plain = is_plain and w.dtype in _FLOATS and outer.get(w.name) is w
    window = tuple(w.shape[1:]) if node.op == "Conv" else ()
    return Site(path, node, names[0], names, fan_in, fan_out, w.name, flipped, is_plain, dtype, way, window)


def _count(node: Node, name: str) -> int:
    value = node.attrs.get(name, 0)
    return value if isinstance(value, int) else 0


def _weight(
    name: str, weights: Mapping[str, Weight], makers: Mapping[str, Node]
) -> tuple[Weight, bool, bool] | None:  # fmt: skip
    """The constant from which nodes make this value; whether they transpose it; whether the value has the constant's
    numbers (not if they are codes that DequantizeLinear decodes). None if the value is no constant."""
    flipped, is_plain = False, True
    while name not in weights:
        node = makers.get(name)
        if node is None:
            return None
        if node.op == "Constant" and isinstance(value := node.attrs.get("value"), Weight):
            return value, flipped, False
        if node.op == "Transpose" and tuple(node.attrs.get("perm", (1, 0))) == (1, 0):  # type: ignore[arg-type]
            flipped = not flipped
        elif node.op in _DECODERS:
            is_plain = False
        elif node.op not in ("Cast", "Identity"):
            return None
        name = node.inputs[0]
    return weights[name], flipped, is_plain


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _names(node: Node, w: Weight) -> tuple[str, ...]:
    """All names of a product. The first is its module's: that of the node's metadata, or else from the weight's or the
    node's name, whichever ends like a module's tensor (`….q_proj.weight`); else from one that has parts; else from
    any."""
    of_node = re.sub(r"/Conv(_\d+)?$", "", node.name) if node.op == "Conv" else node.name
    made = [name for name in (w.name, of_node) if name and "::" not in name]
    in_module = [name for name in made if is_kind(name_parts(name)[-1]) and len(name_parts(name)) > 1]
    paths = [name for name in made if "." in name or "/" in name]
    first = node.module or _module_name([*in_module, *paths, *made, node.outputs[0]][0])
    return tuple(dict.fromkeys([first, *map(_module_name, made), *filter(None, (w.name, node.name))]))


def _module_name(name: str) -> str:
    """The module in the name of a node or a weight."""
    return ".".join(module_parts(name))


def chosen(found: Sequence[Site], patterns: Sequence[str]) -> dict[str, list[Site]]:
    """The sites that patterns choose, by pattern. A pattern is a name in which * stands for any text; without a dot or
    slash it may also be the last part of a module's name, as in PEFT."""
    return {p: [site for site in found if _fits(site, p)] for p in patterns}


def _fits(site: Site, pattern: str) -> bool:
    if any(fnmatchcase(name, pattern) for name in site.names):
        return True
    return not re.search(r"[./]", pattern) and fnmatchcase(site.module.rpartition(".")[2], pattern)


@dataclass(frozen=True, slots=True)
class Part:
    """The columns of a product's output to which a module of an adapter adds: the first, and how many"""

    site: Site
    first: int
    size: int


def _plain_name(module: str) -> tuple[str, ...]:
    return tuple(plain_parts(module))


class Modules:
    """Finds the sites of an adapter's modules."""

    def __init__(self, found: Sequence[Site]) -> None:
        self.by_name: dict[tuple[str, ...], list[Site]] = {}
        for site in found:
            self.by_name.setdefault(_plain_name(site.module), []).append(site)
        own = set(self.by_name)
        for site in found:
            for name in {_plain_name(n) for n in site.names} - own:
                self.by_name.setdefault(name, []).append(site)

    def parts(self, module: str, rows: int) -> list[Part]:
        """The products to which a module of an adapter adds; empty if the graph has none. rows: of the module's B"""
        name = _plain_name(module)
        if found := self._sites(name):
            return [Part(site, 0, site.fan_out) for site in found]
        for fused, names in FUSED.items():
            if name[-1] in names and (found := self._sites((*name[:-1], fused))):
                return [_part(site, names.index(name[-1]), len(names), rows) for site in found]
        return []

    def _sites(self, name: tuple[str, ...]) -> list[Site]:
        """The products of this name. If there are none: those of the one name that ends with it or with which it ends,
        as `layers.0.attn.q_proj` ends with `attn.q_proj`; none if several names do."""
        if name in self.by_name:
            return self.by_name[name]
        ends = [k for k in self.by_name if k[-len(name) :] == name or len(k) > 1 and name[-len(k) :] == k]
        return self.by_name[ends[0]] if len(ends) == 1 else []


def _part(site: Site, n: int, count: int, rows: int) -> Part:
    """Part n of `count`: all have equal sizes, or the first differs from the others (queries of grouped attention)."""
    others = (site.fan_out - rows) // (count - 1) if n == 0 else rows
    first = site.fan_out - others * (count - 1)
    return Part(site, 0 if n == 0 else first + others * (n - 1), rows)


def readers(graph: Graph, name: str) -> int:
    """How many inputs of nodes read a value, in inner graphs, too; outputs of the graph count."""
    direct = sum(list(node.inputs).count(name) for node in graph.nodes)
    inner = sum(1 for node in graph.nodes if name in uses(node) - set(node.inputs))
    return direct + inner + sum(v.name == name for v in graph.outputs)
