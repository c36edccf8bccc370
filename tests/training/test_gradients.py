"""The gradients of all operators against finite differences in double, at two levels of optimisation."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest

from kit.gradients import any_type
from kit.without_gradient import NO_FLOATS, NO_RULE, NOT_COMPARED, ZERO, ZERO_IN_CASES
from pyruntime import GraphOptimizationLevel, InferenceSession, NotDifferentiable, SessionOptions
from pyruntime.frontend import registry
from pyruntime.frontend.own_gradients import GradientRule
from pyruntime.training.derive import gradients  # noqa: F401  all rules
from tests.training.gradient_cases import Case, Group, cases, grouped, with_losses

registry.complete()  # some rules stand beside rare operators
GROUPS = 8  # models into which the cases are divided
PER_OPERATOR = 1  # more in operators that have modes
MODES = {"Attention": 3, "Conv": 2, "Resize": 4, "Pad": 3, "LinearAttention": 3, "ScatterElements": 4, "ScatterND": 4}
EVERY = {"RNN", "GRU", "LSTM", "AttnLSTM"}  # of their many options
STEPS = ((1e-6, 1e-4), (3e-3, 2e-2))  # step and tolerance; the second for operators that compute in float32
OPTIMISERS = [f"ai.onnx.preview.training.{name}" for name in ("Adagrad", "Adam", "Momentum")]
Level = GraphOptimizationLevel


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    with any_type():
        yield


@cache
def chosen() -> list[Case]:
    """Some cases of each operator that has a gradient."""
    out = []
    for (domain, name), found in sorted(cases().items()):
        if spelled(domain, name) not in {*NO_RULE, *NO_FLOATS, *NOT_COMPARED}:
            most = len(found) if name in EVERY else MODES.get(name, PER_OPERATOR)
            out += found[:: max(1, -(-len(found) // most))]
    return out


def spelled(domain: str, name: str) -> str:
    return f"{domain}.{name}" if domain else name


def session(model: bytes, level: Level = Level.ORT_ENABLE_ALL) -> InferenceSession:
    options = SessionOptions()
    options.graph_optimization_level = level
    return InferenceSession(model, options, providers=["wasm"])


def checked(group: Group) -> dict[int, str]:
    """By case, what is wrong with it, "zero" if its gradients are 0, or ""."""
    names = [name for node in group.nodes for name in node.output if name]
    outputs = dict(zip(names, session(group.model(names)).run(names, group.feeds), strict=True))
    nodes, some = with_losses(group, outputs)
    losses = [f"{n}/the.loss" for n, has in enumerate(some) if has]
    xs = [x for n, has in enumerate(some) if has for x in group.names(n)]
    wanted = [*losses, *[f"{x}/gradient" for x in xs]]
    model = group.model(wanted, nodes)
    run = session(model)
    found = dict(zip(wanted, run.run(None, group.feeds), strict=True))
    plain = dict(zip(wanted, session(model, Level.ORT_DISABLE_ALL).run(None, group.feeds), strict=True))
    wrong = {n: "" for n, has in enumerate(some) if has}
    for n in wrong:
        wrong[n] = _compare_levels(group.names(n), found, plain)
    for place in range(max(len(case.feeds) for case in group.cases)):
        _check_input(group, run, found, losses, place, wrong)
    for n, text in wrong.items():
        if not text and not any(found[f"{x}/gradient"].any() for x in group.names(n)):
            wrong[n] = "zero"
    return wrong


def _compare_levels(names: Sequence[str], found: dict[str, np.ndarray], plain: dict[str, np.ndarray]) -> str:
    for x in names:
        a, b = found[f"{x}/gradient"], plain[f"{x}/gradient"]
        if not np.isfinite(a).all():
            return f"{x} has a gradient that is not finite"
        if np.abs(a - b).max() > 1e-4 * max(1.0, np.abs(a).max()):
            return f"{x} has other gradients at another level"
    return ""


def _check_input(
    group: Group, run: InferenceSession, found: dict[str, np.ndarray], losses: Sequence[str], place: int,
    wrong: dict[int, str],
) -> None:  # fmt: skip
    """Compares the derivatives along two random directions of one input of each case."""
    rng = np.random.default_rng(place)
    own = {n: group.names(n)[place] for n in wrong if place < len(group.names(n)) and not wrong[n]}
    errors = {n: [0.0] * len(STEPS) for n in own}
    for _ in range(2):
        along = {x: rng.normal(size=group.feeds[x].shape) for x in own.values()}
        for s, (step, _) in enumerate(STEPS):
            ends = []
            for sign in (step, -step):
                moved = {x: group.feeds[x] + sign * v for x, v in along.items()}
                ends.append(dict(zip(losses, run.run(losses, {**group.feeds, **moved}), strict=True)))
            for n, x in own.items():
                part = found[f"{x}/gradient"] * along[x]
                want = float(ends[0][f"{n}/the.loss"] - ends[1][f"{n}/the.loss"]) / (2 * step)
                scale = max(1e-2, abs(want), np.abs(part).sum() * 1e-2)
                errors[n][s] = max(errors[n][s], abs(want - part.sum()) / scale)
    for n, x in own.items():
        if not any(error < limit for error, (_, limit) in zip(errors[n], STEPS, strict=True)):
            wrong[n] = f"the gradient of {x} differs by {min(errors[n]):.2g}"


@pytest.mark.parametrize("part", range(GROUPS))
def test_gradients_are_those_of_finite_differences(part: int) -> None:
    group = grouped(chosen()[part::GROUPS])
    found = checked(group)
    failed = []
    for n, text in found.items():
        case = group.cases[n]
        if text and not (text == "zero" and spelled(*case.operator) in ZERO | ZERO_IN_CASES):
            failed.append(f"{spelled(*case.operator)} ({case.name}): {text}")
    assert not failed, "\n".join(failed)


def test_every_operator_is_in_the_table() -> None:
    """Each operator has a case here, or stands in exactly one list with a reason."""
    known = {spelled(domain, name) for domain, name in registry.table()}
    checked_ = {spelled(*case.operator) for case in chosen()}
    listed = [*NO_FLOATS, *NO_RULE, *NOT_COMPARED]
    assert not known - {*checked_, *listed, *OPTIMISERS}, "operators without a case or a reason"
    assert not {*listed, *ZERO, *ZERO_IN_CASES} - known, "listed, but no operators"
    assert len(listed) == len({*listed}), "in two lists"
    standard = {name for name in known if "." not in name} - {*NO_FLOATS, *ZERO}
    elsewhere = {name for name, why in NOT_COMPARED.items() if why.endswith("compares it")}
    assert len(standard & {*checked_, *elsewhere}) >= 0.95 * len(standard), standard - checked_ - elsewhere


@pytest.mark.parametrize("name", sorted(NO_RULE))
def test_an_operator_without_a_rule_is_refused(name: str) -> None:
    found = next((c for operator, c in cases().items() if spelled(*operator) == name), None)
    if found is None:
        return
    for case in found[:1]:
        group = grouped([case])
        with pytest.raises(NotDifferentiable, match=name.rpartition(".")[2]):
            checked(group)


def test_each_rule_that_an_operator_declares_has_a_function() -> None:
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("pyruntime.ops.")]
    rules = {f"{m.__name__}.{name}": x for m in modules for name, x in vars(m).items() if isinstance(x, GradientRule)}
    assert "pyruntime.ops.standard.pool.MAX_POOL" in rules
    assert not [name for name, rule in rules.items() if rule._function is None]
