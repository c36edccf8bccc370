"""Tree ensembles. All versions of the operators become one flat table of nodes, which one loop kernel evaluates.

Spec: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html"""

# N rows, F features, C targets or classes

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from operator import lt
from typing import TYPE_CHECKING, Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32, DType
from pyruntime.ir.expr import Expr, X, Y, const, isnan, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import float_type
from pyruntime.ops.ml import DOMAIN
from pyruntime.ops.ml.scores import TRANSFORMS, above, apply_transform, best, labels, two_classes

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Weight

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"]
MEMBER, LEAF = 6, 7
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(slots=True)
class Forest:
    """Columns of the node table; yes and no are node indices. A leaf has the votes [first, last), a MEMBER node the set
    members [first, last)."""

    modes: list[int] = field(default_factory=list)
    features: list[int] = field(default_factory=list)
    splits: list[float] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)  # of votes
    weights: list[float] = field(default_factory=list)
    members: list[float] = field(default_factory=list)

    def node(self, *row: Any) -> None:
        """Add a node: mode, feature, split, yes, no, missing, first, last."""
        columns: tuple[list[Any], ...] = (
            self.modes, self.features, self.splits, self.yes, self.no, self.missing, self.first, self.last,
        )  # fmt: skip
        for column, value in zip(columns, row, strict=True):
            column.append(value)


def check_forest(t: Tracer, forest: Forest, features: AnyDim, count: int) -> None:
    """Refuse a forest whose walk would leave its tables, or never end."""
    inner = [n for n, mode in enumerate(forest.modes) if mode != LEAF]
    used = [forest.features[n] for n in inner] or [0]
    for feature in (min(used), max(used)):
        if not 0 <= feature < 1 << 31:
            raise t.shape_error(f"feature {feature} is not an index of 31 bits")
    t.require(
        sh.compare("lt", max(used), features) if inner else 1,
        f"feature {max(used)} is out of range for {features} features",
    )
    for target in {min(forest.targets, default=0), max(forest.targets, default=0)}:
        if forest.targets and not 0 <= target < count:
            raise t.shape_error(f"target {target} is out of range for {count} targets")
    yes, no = ([column[n] for n in inner] for column in (forest.yes, forest.no))
    nodes = len(forest.modes)
    for n in {f(column) for f in (min, max) for column in (forest.roots, yes, no) if column}:
        if not 0 <= n < nodes:
            raise t.shape_error(f"node {n} does not exist, the trees have {nodes}")
    if all(map(lt, inner, yes)) and all(map(lt, inner, no)):
        return
    try:
        TopologicalSorter(dict(zip(inner, zip(yes, no, strict=True), strict=True))).prepare()
    except CycleError:
        raise t.shape_error("the nodes of a tree form a cycle") from None


def walk(t: Tracer, forest: Forest, x: Tensor, count: int, aggregate: str, dtype: DType) -> Tensor:
    """The votes of all trees, (N, F) -> (N, C); a target without votes has 0."""
    return walk_and_mark(t, forest, x, count, aggregate, dtype)[0]


def walk_and_mark(
    t: Tracer, forest: Forest, x: Tensor, count: int, aggregate: str, dtype: DType, marks: bool = False
) -> tuple[Tensor, ...]:
    """The votes and, with `marks`, 1 for each target that has votes, else 0."""
    if aggregate not in AGGREGATES:
        raise t.unsupported(f"aggregate_function {aggregate!r} is not known")
    check_forest(t, forest, x.shape[1], count)
    columns = {name: getattr(forest, name) for name in ("modes", "yes", "no", "first", "last", "roots", "targets")}
    columns["features"] = [0 if m == LEAF else f for m, f in zip(forest.modes, forest.features, strict=True)]
    columns["missing"] = [int(m != 0) for m in forest.missing]
    ints = {name: t.constant(column or [0], I32) for name, column in columns.items()}
    floats = {name: t.constant(getattr(forest, name) or [0.0], dtype) for name in ("splits", "weights", "members")}
    tables = {**ints, **floats}
    x = t.cast(x, dtype)
    extreme = {"MIN": "min", "MAX": "max"}.get(aggregate)
    kinds = {m for m in forest.modes if m != LEAF}
    any_missing = any(forest.missing)

    def body(k: Builder, out: Tensor, seen: Tensor) -> None:
        with k.parallel(x.shape[0]) as n:
            with k.loop(count) as c:
                k.store(out, (n, c), 0.0)
                k.store(seen, (n, c), 0)
            with k.loop(len(forest.roots)) as tree:
                node = k.var(tables["roots"][tree], I32)
                with k.while_(tables["modes"][node.get] != LEAF):
                    value = k.let(x[n, tables["features"][node.get]])
                    holds = _holds(k, tables, node.get, value, kinds)
                    if any_missing:
                        holds = holds | (isnan(value) & (tables["missing"][node.get] != 0))
                    node.set(select(holds, tables["yes"][node.get], tables["no"][node.get]))
                start = k.let(tables["first"][node.get])
                with k.loop(tables["last"][node.get] - start) as v:
                    at = k.let(tables["targets"][start + v])
                    old, vote = out[n, at], tables["weights"][start + v]
                    if extreme:
                        better = vote < old if extreme == "min" else vote > old
                        k.store(out, (n, at), select((seen[n, at] < 1) | better, vote, old))
                    else:
                        k.store(out, (n, at), old + vote)
                    if extreme or marks:
                        k.store(seen, (n, at), 1)

    shape = (x.shape[0], count)
    out, seen = t.loops("trees", [x, *tables.values()], [(shape, dtype), (shape, I32)], body)
    return (t.map(X / float(max(len(forest.roots), 1)), out) if aggregate == "AVERAGE" else out), seen


def _holds(k: Builder, tables: dict[str, Tensor], node: Expr, value: Expr, kinds: set[int]) -> Expr:
    """Whether the node's test holds. Only the kinds of tests that occur are compiled."""
    split, mode = tables["splits"][node], tables["modes"][node]
    tests = {
        0: value <= split,
        1: value < split,
        2: value >= split,
        3: value > split,
        4: value == split,
        5: value != split,
    }
    out: Expr | None = None
    for kind in sorted(kinds, reverse=True):
        if kind == MEMBER:
            is_member = k.var(0, I32)
            start = k.let(tables["first"][node])
            with k.loop(tables["last"][node] - start) as m:
                is_member.set(select(tables["members"][start + m] == value, const(1, I32), is_member.get))
            test = is_member.get > 0
        else:
            test = tests[kind]
        out = test if out is None else select(mode == kind, test, out)
    return value == value if out is None else out


# ── from attributes to a Forest ───────────────────────────────────────────────────────────────────────────────────


def _numbers(t: Tracer, values: Sequence[float], tensor: Any) -> list[float]:
    return t.elements(tensor) if tensor is not None else list(values)


def _forest_3(
    t: Tracer, a: dict[str, Any], votes: str, *,
    nodes_falsenodeids: Sequence[int] = (), nodes_featureids: Sequence[int] = (),
    nodes_hitrates: Sequence[float] = (), nodes_hitrates_as_tensor: Weight | None = None,
    nodes_missing_value_tracks_true: Sequence[int] = (), nodes_modes: Sequence[str] = (),
    nodes_nodeids: Sequence[int] = (), nodes_treeids: Sequence[int] = (), nodes_truenodeids: Sequence[int] = (),
    nodes_values: Sequence[float] = (), nodes_values_as_tensor: Weight | None = None,
) -> Forest:  # fmt: skip
    """The forest of versions 1 to 3, whose attributes name nodes by (tree, node). `votes` is "class" or "target"; a:
    the operator's other attributes."""
    a = a | locals()
    _check_lists(t, a, votes)
    if unknown := set(a["nodes_modes"]).difference(MODES):
        raise t.unsupported(f"the mode {min(unknown, key=repr)!r} of a node is not known")
    trees, count = a["nodes_treeids"], len(a["nodes_treeids"])
    at = dict(zip(zip(trees, a["nodes_nodeids"], strict=True), range(count), strict=True))
    code = {name: n for n, name in enumerate(MODES)}
    modes = [code[name] for name in a["nodes_modes"]]
    yes, no = (
        [0 if mode == LEAF else at.get((tree, n), -1) for mode, tree, n in zip(modes, trees, below, strict=True)]
        for below in (a["nodes_truenodeids"], a["nodes_falsenodeids"])
    )
    places = [at.get(key, -1) for key in zip(a[f"{votes}_treeids"], a[f"{votes}_nodeids"], strict=True)]
    order = sorted([v for v, n in enumerate(places) if n >= 0 and modes[n] == LEAF], key=places.__getitem__)
    votes_of = [0] * count
    for v in order:
        votes_of[places[v]] += 1
    last = list(accumulate(votes_of))
    weights = _numbers(t, a[f"{votes}_weights"], a[f"{votes}_weights_as_tensor"])
    splits = _numbers(t, a["nodes_values"], a["nodes_values_as_tensor"]) or [0.0] * count
    return Forest(
        modes, list(a["nodes_featureids"]), splits, yes, no,
        list(a["nodes_missing_value_tracks_true"]) or [0] * count, [0, *last[:-1]], last,
        sorted(dict(zip(reversed(trees), reversed(range(count)), strict=True)).values()),
        [a[f"{votes}_ids"][v] for v in order], [weights[v] for v in order],
    )  # fmt: skip


def _check_lists(t: Tracer, a: dict[str, Any], votes: str) -> None:
    """Refuse lists that do not have one entry per node, or per vote."""
    nodes, count = len(a["nodes_treeids"]), len(a[f"{votes}_treeids"])
    for name in ("nodeids", "modes", "featureids", "truenodeids", "falsenodeids"):
        t.entries(f"nodes_{name}", a[f"nodes_{name}"], nodes)
    for name, values in (
        ("nodes_values", _numbers(t, a["nodes_values"], a["nodes_values_as_tensor"])),
        ("nodes_missing_value_tracks_true", a["nodes_missing_value_tracks_true"]),
    ):
        t.entries(name, values or [0] * nodes, nodes)
    t.entries(f"{votes}_weights", _numbers(t, a[f"{votes}_weights"], a[f"{votes}_weights_as_tensor"]), count)
    t.entries(f"{votes}_nodeids", a[f"{votes}_nodeids"], count)
    t.entries(f"{votes}_ids", a[f"{votes}_ids"], count)


def _forest_5(t: Tracer, a: dict[str, Any]) -> Forest:
    """The forest of version 5, whose leaves are a separate table; here they follow the nodes."""
    forest = Forest(roots=list(a["tree_roots"]))
    modes, splits = t.elements(a["nodes_modes"]), t.elements(a["nodes_splits"])
    sets = _sets(t, a["membership_values"])
    count = len(modes)
    missing = a["nodes_missing_value_tracks_true"] or [0] * count
    t.entries("nodes_splits", splits, count)
    t.entries("nodes_missing_value_tracks_true", missing, count)
    for name in ("featureids", "trueleafs", "falseleafs", "truenodeids", "falsenodeids"):
        t.entries(f"nodes_{name}", a[f"nodes_{name}"], count)
    if len(sets) < sum(mode == MEMBER for mode in modes):
        raise t.shape_error("membership_values has fewer sets than there are MEMBER nodes")
    for n, mode in enumerate(modes):
        start = len(forest.members)
        forest.members += sets.pop(0) if mode == MEMBER else []
        yes, no = (_child(t, a, side, n) for side in ("true", "false"))
        span = (start, len(forest.members))
        forest.node(int(mode), a["nodes_featureids"][n], splits[n], yes, no, missing[n], *span)
    forest.targets, forest.weights = list(a["leaf_targetids"]), t.elements(a["leaf_weights"])
    t.entries("leaf_weights", forest.weights, len(forest.targets))
    for n in range(len(forest.targets)):
        forest.node(LEAF, 0, 0.0, 0, 0, 0, n, n + 1)
    return forest


def _child(t: Tracer, a: dict[str, Any], side: str, n: int) -> int:
    """The index of the child on a side of node n. Leaves follow the nodes."""
    child, leaf = a[f"nodes_{side}nodeids"][n], a[f"nodes_{side}leafs"][n]
    nodes, leaves = len(a[f"nodes_{side}nodeids"]), len(a["leaf_targetids"])
    most, kind = (leaves, "leaves") if leaf else (nodes, "nodes")
    if not 0 <= child < most:
        raise t.shape_error(f"nodes_{side}nodeids has {child}, there are {most} {kind}")
    return child + nodes if leaf else child


def _sets(t: Tracer, values: Any) -> list[list[float]]:
    """The sets of the MEMBER nodes, in order; NaN ends a set."""
    sets: list[list[float]] = [[]]
    for v in t.elements(values) if values is not None else []:
        if math.isnan(v):
            sets.append([])
        else:
            sets[-1].append(v)
    return sets


# ── operators ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _add_base(t: Tracer, scores: Tensor, base: Sequence[float]) -> Tensor:
    return t.map(X + Y, scores, t.constant(base, scores.dtype)) if base else scores


@op("TreeEnsemble", since=5, domain=DOMAIN)
def tree_ensemble(
    t: Tracer, x: Tensor, *, aggregate_function: int = 1, leaf_targetids: Sequence[int], leaf_weights: Weight,
    membership_values: Weight | None = None, n_targets: int = 1, nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int], nodes_featureids: Sequence[int], nodes_hitrates: Weight | None = None,
    nodes_missing_value_tracks_true: Sequence[int] = (), nodes_modes: Weight, nodes_splits: Weight,
    nodes_trueleafs: Sequence[int], nodes_truenodeids: Sequence[int], post_transform: int = 0,
    tree_roots: Sequence[int],
) -> Tensor:  # fmt: skip
    """(N, F) -> (N, n_targets)"""
    if not (0 <= aggregate_function < len(AGGREGATES) and 0 <= post_transform < len(TRANSFORMS)):
        raise t.unsupported(f"aggregate_function {aggregate_function}, post_transform {post_transform} are not known")
    for name, numbers in (("nodes_splits", nodes_splits), ("leaf_weights", leaf_weights)):
        if numbers.dtype is not x.dtype:
            raise t.unsupported(f"{name} must have the input's type {x.dtype.name}, is {numbers.dtype.name}")
    forest = _forest_5(t, dict(locals()))
    scores = walk(t, forest, x, n_targets, AGGREGATES[aggregate_function], float_type(x.dtype))
    return t.cast(apply_transform(t, scores, TRANSFORMS[post_transform]), x.dtype)


@op("TreeEnsembleRegressor", domain=DOMAIN)
@attributes_of(_forest_3)
def tree_ensemble_regressor(
    t: Tracer, x: Tensor, *, aggregate_function: str = "SUM", base_values: Sequence[float] = (),
    base_values_as_tensor: Weight | None = None, n_targets: int = 1, post_transform: str = "NONE",
    target_ids: Sequence[int] = (), target_nodeids: Sequence[int] = (), target_treeids: Sequence[int] = (),
    target_weights: Sequence[float] = (), target_weights_as_tensor: Weight | None = None, **nodes: Any,
) -> Tensor:  # fmt: skip
    """(N, F) -> float32 (N, n_targets)"""
    forest = _forest_3(t, dict(locals()), "target", **nodes)
    scores = walk(t, forest, x, n_targets, aggregate_function, float_type(x.dtype))
    scores = _add_base(t, scores, _numbers(t, base_values, base_values_as_tensor))
    return t.cast(apply_transform(t, scores, post_transform), F32)


@op("TreeEnsembleClassifier", domain=DOMAIN)
@attributes_of(_forest_3)
def tree_ensemble_classifier(
    t: Tracer, x: Tensor, *, base_values: Sequence[float] = (), base_values_as_tensor: Weight | None = None,
    class_ids: Sequence[int] = (), class_nodeids: Sequence[int] = (), class_treeids: Sequence[int] = (),
    class_weights: Sequence[float] = (), class_weights_as_tensor: Weight | None = None,
    classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = (), post_transform: str = "NONE",
    **nodes: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(N, F) -> labels (N), float32 scores (N, C). With two classes and votes for only one of them, its score decides:
    above 0.5 if all votes are positive, else above 0."""
    forest = _forest_3(t, dict(locals()), "class", **nodes)
    count = len(classlabels_strings or classlabels_int64s)
    base = _numbers(t, base_values, base_values_as_tensor)
    voted = set(forest.targets)
    if count == 2 and len(voted) == 1:
        forest.targets = [0] * len(forest.targets)
        positive = not any(w < 0 for w in forest.weights)
        score = _add_base(t, walk(t, forest, x, 1, "SUM", float_type(x.dtype)), base[-1:])
        place = above(t, score, 0.5 if positive else 0.0)
        if voted == {0}:
            scores = two_classes(t, score, post_transform, positive)
        else:
            scores = apply_transform(t, t.concat([t.fill(score.shape, 0.0, score.dtype), score], 1), post_transform)
    else:
        # With three or more classes, classes without votes are not candidates; a base value counts as a vote.
        marks = count > 2 and not base and not all(w > 0 for w in forest.weights)
        raw, seen = walk_and_mark(t, forest, x, count, "SUM", float_type(x.dtype), marks)
        raw = _add_base(t, raw, base)
        place = best(t, raw, seen if marks else None)
        scores = apply_transform(t, raw, post_transform)
    return labels(t, place, classlabels_int64s, classlabels_strings), t.cast(scores, F32)
