"""The target "gradients": a random graph in double, whose transposed products must agree, ⟨J v, u⟩ = ⟨v, Jᵀ u⟩. Jᵀ u
are the gradients of ⟨y, u⟩; J v are differences of y along v."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from fuzz.case import Case, Verdict
from fuzz.draw import Draw, is_float
from fuzz.engine import PLAIN, TWINS, Failed, Twin, TwinSession, failure
from fuzz.graphs import Around
from fuzz.mutate_node import CHANGES, change_type, change_values
from fuzz.node import Node, describe, full_name, model_of, nodes
from fuzz.undefined import Cause, open_outputs
from kit.gradients import CONSTANT, TRAINING, any_type, gradient_node, in_double, loss_of
from kit.without_gradient import NO_FLOATS, ZERO

LARGEST = 50.0  # of floats: no case for functions that grow fast
STEPS = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2)  # of differences: the larger ones for operators that compute in float32
LIMIT = 1e-3  # relative errors that differences may have
LOSS = "the.loss"
# Twins whose gradients must not differ, the last ones for models with loops
LOOPING = ("level disabled", "loops step by step", "loops in short turns")
MAY_REFUSE = ("NotDifferentiable", "OutOfMemory")
# They round, and their gradients pass through as if they did not.
ROUNDING = {"QuantizeLinear", "DynamicQuantizeLinear"}


def case(draw: Draw, node: Node) -> Case | None:
    name = f"{node.domain}.{node.op}" if node.domain else node.op
    if name in NO_FLOATS or not any(isinstance(x, np.ndarray) and is_float(x.dtype) for x in node.inputs):
        return None
    for chance, change in CHANGES:
        if change not in (change_type, change_values) and draw.chance(chance * 0.7):
            change(draw, node)
    if any(not np.all(np.abs(v) < LARGEST) for v in node.attributes.values() if isinstance(v, float | list)
           and np.asarray(v).dtype.kind == "f"):  # fmt: skip
        return None
    fresh = draw.chance(0.4)
    node.inputs = [_in_double(draw, x, fresh) for x in node.inputs]
    data, feeds = model_of(draw, node, draw.pick(["static", "static", "symbolic", "unknown"]), fixed=0.3)
    model = onnx.load_from_string(data)
    model.graph.node[0].CopyFrom(in_double(model.graph.node[0]))
    around = Around(draw, model, feeds)
    if node.domain != "ai.onnx.ml":
        around.before()
    around.after()
    return Case("gradients", around.model.SerializeToString(), (around.feeds,), note=describe(node))


def _in_double(draw: Draw, x: Any, fresh: bool) -> Any:
    """Plain numbers, away from ties and kinks."""
    if not isinstance(x, np.ndarray) or not is_float(x.dtype):
        return x
    wide = x.astype(np.float64)
    plain = np.where(np.abs(wide) < LARGEST, wide, 0.5)
    values = draw.rng.normal(size=x.shape) if fresh else plain
    away = draw.rng.uniform(0.5, 1.5, x.shape) * 3e-2 * draw.rng.choice([-1, 1], x.shape)
    return np.asarray(values + away)


# ── the verdict ───────────────────────────────────────────────────────────────────────────────────────────────────


def judge(case: Case, draw: Draw, report: Callable[[str, bool], None]) -> Verdict:
    with any_type():
        try:
            return _Judged(case, draw, report).verdict()
        except _Ended as e:
            return e.verdict


class _Ended(Exception):
    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.verdict = verdict


class _Judged:
    def __init__(self, case: Case, draw: Draw, report: Callable[[str, bool], None]) -> None:
        self.case, self.rng, self.report = case, draw.rng, report
        self.core = case.note.split(" ")[0]
        self.model = onnx.load_from_string(case.model)
        (self.feeds,) = case.runs
        fixed = _settings(self.model)
        self.xs = [k for k, x in self.feeds.items()
                   if isinstance(x, np.ndarray) and x.dtype == np.float64 and k not in fixed]  # fmt: skip

    def verdict(self) -> Verdict:
        if not self.xs:
            return Verdict("no case")
        self.report("forward", True)
        results = self.answer(self.model, PLAIN)
        loss, constants = loss_of(results, LOSS, self.rng)
        if not loss:
            return Verdict("no case")
        size = sum(float(np.abs(y[c != 0] * c[c != 0]).sum()) for name, y in results.items()
                   if (c := constants.get(f"{name}/factors")) is not None)  # fmt: skip
        model = self.with_gradients(loss, constants)
        wanted = [LOSS, *[f"{x}/gradient" for x in self.xs]]
        self.report("gradients", True)
        session, found = self.gradients(model, wanted)
        loops = any(full_name(n) in ("Loop", "Scan") for n in nodes(self.model.graph))
        for twin in (t for t in TWINS if t.name in (LOOPING if loops else LOOPING[:1])):
            self.report(twin.name, True)
            _, other = self.run(model, twin, wanted)
            for x, a, b in zip(wanted, found, other, strict=True):
                if what := _differ(a, b):
                    return Verdict("wrong", f"{twin.name}: {self.core}", f"{x}: {what}")
        self.report("differences", True)
        gradients = dict(zip(self.xs, found[1:], strict=True))
        for x in (*self.xs, None):
            along = {x: self.rng.normal(size=self.feeds[x].shape) for x in (self.xs if x is None else [x])}
            verdict = self.compare(session, gradients, along, max(size, 1e-3))
            if verdict.outcome != "right" and (still := self.frozen(loss, constants)):
                verdict = self.compare(self.session(still), gradients, along, max(size, 1e-3))
            if verdict.outcome != "right":
                return verdict
        return Verdict("right")

    def with_loss(self, loss: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
        made = self.with_outputs([LOSS])
        made.graph.node.extend(loss)
        made.graph.initializer.extend(numpy_helper.from_array(np.asarray(c), k) for k, c in constants.items())
        return made

    def with_gradients(self, loss: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
        made = self.with_loss(loss, constants)
        made.graph.node.append(gradient_node(self.xs, LOSS))
        made.graph.output.extend(onnx.ValueInfoProto(name=f"{x}/gradient") for x in self.xs)
        made.opset_import.append(onnx.helper.make_opsetid(TRAINING, 1))
        return made

    def gradients(self, model: onnx.ModelProto, wanted: list[str]) -> tuple[TwinSession, list[Any]]:
        """Of a model that runs: only an operator without a gradient is a reason to refuse."""
        try:
            return self.run(model, PLAIN, wanted)
        except _Ended as e:
            may = e.verdict.outcome != "refused" or e.verdict.kind.startswith(MAY_REFUSE)
            if not may:
                self.values()  # raises if the graph itself is at fault, in a part whose values nothing reads
                raise _Ended(replace(e.verdict, outcome="wrong")) from e
            raise

    def answer(self, model: onnx.ModelProto, twin: Twin) -> dict[str, Any]:
        names = [o.name for o in model.graph.output]
        return dict(zip(names, self.run(model, twin, names)[1], strict=True))

    def run(self, model: onnx.ModelProto, twin: Twin, names: list[str]) -> tuple[TwinSession, list[Any]]:
        session = self.session(model, twin)
        return session, self.ask(session, self.feeds)

    def session(self, model: onnx.ModelProto, twin: Twin = PLAIN) -> TwinSession:
        try:
            return TwinSession(model.SerializeToString(), twin, self.case.options)
        except Exception as e:
            raise _Ended(_refused(failure(e))) from e

    def ask(self, session: TwinSession, feeds: dict[str, Any], names: list[str] | None = None) -> list[Any]:
        found = session.run(feeds, names)
        if isinstance(found, Failed):
            raise _Ended(_refused(found))
        return found

    def compare(
        self, session: TwinSession, gradients: dict[str, Any], along: dict[str, np.ndarray], size: float
    ) -> Verdict:  # fmt: skip
        with np.errstate(all="ignore"):
            terms = [gradients[x] * v for x, v in along.items()]
            got = float(sum(p.sum() for p in terms))
            spread = float(sum(np.abs(p).sum() for p in terms))
        here = float(self.ask(session, self.feeds, [LOSS])[0])
        trusted = self.differences(session, along, here, size)
        if trusted is None:
            return Verdict("open", "differences do not converge")
        scale = max(abs(trusted), spread * 1e-2, size * 1e-3)
        if np.isfinite(got) and abs(got - trusted) <= 3 * LIMIT * scale:
            return Verdict("right")
        if _rounds(self.model):
            return Verdict("open", "it rounds")
        if not np.isfinite(got) and not self.is_finite():
            return Verdict("open", "a value that does not count is not finite: 0 times it is not 0")
        if not np.isfinite(got) and (reasons := self.undefined()):
            return Verdict("open", f"the standard leaves values open: {'; '.join(sorted(reasons))}")
        names = ", ".join(along)
        detail = f"⟨v, Jᵀ u⟩ = {got:.6g}, ⟨J v, u⟩ = {trusted:.6g} along {names}"
        return Verdict("wrong", f"differences: {self.core}", detail)

    def frozen(self, loss: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> onnx.ModelProto | None:
        """The loss with all values that are piecewise constant as they are here; None if there are none. Differences of
        the model itself cross many of their jumps where they are large, and then look smooth."""
        if _rounds(self.model):  # gradients pass through codes
            return None
        read = _needed(self.model, [name for node in loss for name in node.input])
        values = self.values(read)
        still = {k: x for k, x in values.items() if isinstance(x, np.ndarray) and x.dtype.kind in "iub"}
        made = self.with_loss(loss, constants)
        for node in made.graph.node:
            if full_name(node) in ZERO:
                still |= {name: values[name] for name in node.output if name in values}
            node.output[:] = [f"{name}/moving" if name in still else name for name in node.output]
        made.graph.initializer.extend(numpy_helper.from_array(np.asarray(x), name) for name, x in still.items())
        return made if still else None

    def is_finite(self) -> bool:
        """Whether all values of the graph are."""
        arrays = (x for x in self.values().values() if isinstance(x, np.ndarray))
        return all(np.isfinite(x).all() for x in arrays if x.dtype.kind == "f")

    def undefined(self) -> set[str]:
        """Why the standard leaves values of the graph open. Inside an operator such a value may be NaN where none of
        the graph's is: the root of a negative variance, if there are no elements to scale."""
        fed = {w.name: numpy_helper.to_array(w) for w in self.model.graph.initializer} | self.feeds
        rules = open_outputs(self.model, self.values() | fed, fed)
        return {rule.reason for found in rules for rule in found if rule.cause is Cause.MEANING}

    def moved(self, along: dict[str, np.ndarray], step: float) -> dict[str, Any]:
        return {**self.feeds, **{x: self.feeds[x] + step * v for x, v in along.items()}}

    def values(self, among: set[str] | None = None) -> dict[str, Any]:
        """Values of the graph by name: those that nodes make, all or of these."""
        names = [name for node in self.model.graph.node for name in node.output if name]
        names = [name for name in names if among is None or name in among]
        return self.answer(self.with_outputs(names), PLAIN)

    def with_outputs(self, names: list[str]) -> onnx.ModelProto:
        made = onnx.ModelProto()
        made.CopyFrom(self.model)
        del made.graph.output[:]
        made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return made

    def differences(self, session: TwinSession, along: dict[str, np.ndarray], here: float, size: float) -> float | None:
        """The derivative, if the differences of three steps agree, on both sides: no kink or jump is near, and float32
        inside an operator does not decide. At a kink both sides differ by as much at each step, elsewhere by less at
        smaller ones."""
        agreeing: list[float] = []
        gaps: list[float] = []
        for step in STEPS:
            ends = [float(self.ask(session, self.moved(along, s), [LOSS])[0]) for s in (step, -step)]
            forward, backward = (ends[0] - here) / step, (here - ends[1]) / step
            centre = (forward + backward) / 2
            scale = max(abs(centre), size * 1e-3)
            stuck = centre == 0.0 and step < 1e-3  # in the digits of float32
            if stuck or not abs(forward - backward) <= 0.05 * scale:
                agreeing, gaps = [], []
                continue
            agreeing = [c for c in agreeing if abs(centre - c) <= LIMIT * scale] + [centre]
            gaps.append(abs(forward - backward) / scale)
            if len(agreeing) == 3:
                return None if min(gaps[-3:]) > max(2 * LIMIT, max(gaps[-3:]) / 2) else centre
        return None


def _refused(failed: Failed) -> Verdict:
    if not failed.typed:
        return Verdict("untyped", failed.kind, failed.message)
    return Verdict("refused", failed.kind, failed.message)


def _differ(a: Any, b: Any) -> str:
    if a.shape != b.shape:
        return f"shapes {a.shape}, {b.shape}"
    finite = np.isfinite(a) & np.isfinite(b)
    if (np.isfinite(a) != np.isfinite(b)).any():
        return "not finite at one level only"
    most = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    limit = 1e-4 * max(1.0, float(np.abs(a[finite]).max(initial=0.0)))
    return "" if most <= limit else f"differs by {most:.3g}"


def _rounds(model: onnx.ModelProto) -> bool:
    return any(n.op_type in ROUNDING or "Quant" in n.op_type or "QL" in n.op_type for n in nodes(model.graph))


def _settings(model: onnx.ModelProto) -> set[str]:
    """The values that inputs which are settings depend on."""
    settings = [n.input[i] for n in model.graph.node for i in CONSTANT.get(full_name(n), ()) if i < len(n.input)]
    return _needed(model, settings)


def _needed(model: onnx.ModelProto, names: list[str]) -> set[str]:
    """These values and all that they depend on."""
    made = {name: n for n in model.graph.node for name in n.output}
    todo, found = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += made[name].input if name in made else ()
    return found
