"""Passes that users register, and the pipeline of passes that one session runs (docs/extending.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, TypeVar

from pyruntime.compiler.pipeline import PASSES, REQUIRED, Pass, Work
from pyruntime.errors import InvalidInput, InvalidModel, PyRuntimeError, SessionFailed
from pyruntime.frontend.budget import Budget
from pyruntime.ir.kernel import Kernel
from pyruntime.ir.rewriting import Rule, check_kernels, computing, rewrite_kernels
from pyruntime.onnx.graph import Graph, distinct
from pyruntime.onnx.node_order import sort_nodes
from pyruntime.options import LEVELS

_registered: list[Pass] = []  # in the order of registration

F = TypeVar("F", bound=Callable[..., Any])


def graph_pass(name: str, *, before: str = "", after: str = "", level: str = "basic") -> Callable[[F], F]:
    """Register a function `Graph -> Graph` that rewrites the nodes of a model when a session opens it.

    before, after: the name of the pass beside which it runs, by default before "lowering"
    level: the lowest optimisation level at which it runs
    The function must not change the inputs and outputs of the graph.
    Errors: InvalidInput for a name that is in use, or a position after "lowering"."""

    def register(fn: F) -> F:
        _add(Pass(name, level, fn, "graph", before=before if before or after else "lowering", after=after))
        return fn

    return register


def rewrite_rule(name: str, *, before: str = "", after: str = "", level: str = "basic") -> Callable[[F], F]:
    """Register a function that the compiler calls with each kernel that computes. It returns None to leave the kernel,
    a kernel that makes the same outputs, or several kernels of which the last one does.

    before, after: the name of the pass beside which it runs, by default after "legalise"
    level: the lowest optimisation level at which it runs
    Errors: InvalidInput for a name that is in use, or a position before "lowering"."""

    def register(fn: F) -> F:
        _add(Pass(name, level, _rewrite_with(fn), before=before, after=after if before or after else "legalise"))
        return fn

    return register


def remove_pass(name: str) -> None:
    """Remove a pass that `graph_pass` or `rewrite_rule` registered. Errors: InvalidInput for any other name."""
    if name not in {p.name for p in _registered}:
        raise InvalidInput(f'no pass with the name "{name}" was registered')
    rest = [p for p in _registered if p.name != name]
    _ordered(rest)
    _registered[:] = rest


def _rewrite_with(rule: Rule) -> Callable[[Work], None]:
    def run(w: Work) -> None:
        for block, known in ((w.init, ()), (w.main, [t.uid for k in w.init.kernels for t in k.outputs])):
            rewrite_kernels(block, computing(_checked_rule(rule)))
            check_kernels(block, known)

    return run


def _checked_rule(rule: Rule) -> Rule:
    """The rule with a check of what it returns. Errors name the kernel's node."""

    def checked(kernel: Kernel) -> Kernel | Sequence[Kernel] | None:
        try:
            new = rule(kernel)
        except PyRuntimeError as error:
            raise error.at(kernel.node) from None
        except Exception as error:
            raise SessionFailed(f"{type(error).__name__}: {error}", node=kernel.node) from error
        kernels = list(new) if isinstance(new, (list, tuple)) else [new]
        if new is not None and not (kernels and all(isinstance(k, Kernel) for k in kernels)):
            raise InvalidModel(f"returned {new!r}, not None, a kernel or kernels", node=kernel.node)
        return new

    return checked


def _add(new: Pass) -> None:
    if new.level not in LEVELS:
        raise InvalidInput(f"optimisation level {new.level!r}", hint=f"one of {', '.join(LEVELS)}")
    if new.before and new.after:
        raise InvalidInput(f'pass "{new.name}" has two positions', hint="give either before= or after=, not both")
    if new.name in known_passes():
        raise InvalidInput(f'a pass "{new.name}" exists already', hint="remove_pass removes one that was registered")
    _ordered([*_registered, new])
    _registered.append(new)


def _ordered(registered: Iterable[Pass]) -> list[Pass]:
    """The table with these passes inserted. Errors: InvalidInput for a position beside an unknown pass, or on the wrong
    side of the lowering."""
    table = list(PASSES)
    for new in registered:
        table.insert(_position(new, table), new)
        graph, kernels = _split_at_lowering(table)
        if new not in (graph if new.on == "graph" else kernels):
            side, work = ("before", "a graph") if new.on == "graph" else ("after", "kernels")
            raise InvalidInput(f'pass "{new.name}" works on {work}, so it must run {side} "lowering"')
    return table


def _position(new: Pass, table: Sequence[Pass]) -> int:
    """Return the index at which the new pass goes into the table.

    That is before the first pass with the given name, or after the last one and all passes registered after it.
    """
    rows = [n for n, p in enumerate(table) if p.name == (new.before or new.after)]
    if not rows:
        names = ", ".join(dict.fromkeys(p.name for p in table))
        raise InvalidInput(
            f'pass "{new.name}" should run beside "{new.before or new.after}", which is not a pass', hint=names
        )
    if new.before:
        return rows[0]
    return rows[-1] + 1 + len(list(takewhile(lambda p: p.after == new.after, table[rows[-1] + 1 :])))


def _split_at_lowering(table: Sequence[Pass]) -> tuple[list[Pass], list[Pass]]:
    middle = next(n for n, p in enumerate(table) if p.name == "lowering")
    return list(table[:middle]), list(table[middle + 1 :])


def is_extended() -> bool:
    """Whether users have registered passes."""
    return bool(_registered)


def known_passes() -> list[str]:
    """Names of all passes, in the order in which they first run."""
    return list(dict.fromkeys(p.name for p in _ordered(_registered)))


class Pipeline:
    """The passes that one session runs. Errors: InvalidInput for an unknown name, and for a disabled pass that is
    required."""

    def __init__(self, level: str = "all", disabled: Sequence[str] = ()) -> None:
        for name in disabled:
            if name in REQUIRED:
                raise InvalidInput(f'the pass "{name}" is required and cannot be disabled')
            if name not in known_passes():
                raise InvalidInput(f'there is no pass "{name}" to disable', hint=", ".join(known_passes()))
        graph, kernels = _split_at_lowering(_ordered(_registered))
        self._graph, self._kernels = (
            [p for p in passes if LEVELS.index(p.level) <= LEVELS.index(level) and p.name not in disabled]
            for passes in (graph, kernels)
        )

    def graph(self, graph: Graph) -> Graph:
        """The graph after the passes on graphs. To be called once for a model."""
        for p in self._graph:
            with _errors_name(p):
                graph = _checked(p.run(graph), graph)
        return graph

    def kernels(self, work: Work, budget: Budget) -> None:
        """Run the passes on kernels."""
        for p in self._kernels:
            budget.check(f'at the pass "{p.name}"')
            if p.applies(work):
                with _errors_name(p):
                    p.run(work)


@contextmanager
def _errors_name(p: Pass) -> Iterator[None]:
    """Errors inside the block name the pass, if a user registered it."""
    try:
        yield
    except PyRuntimeError as error:
        if p.by_user:
            error.message = f'pass "{p.name}": {error.message}'
        raise
    except Exception as error:
        if p.by_user:
            raise SessionFailed(f'pass "{p.name}" failed: {type(error).__name__}: {error}') from error
        raise


def _checked(new: object, old: Graph) -> Graph:
    """The graph that a pass returned, with its nodes sorted. Errors: InvalidModel if it is no graph, has other inputs
    or outputs, or reads names that nothing makes."""
    if not isinstance(new, Graph):
        raise InvalidModel(f"returned {type(new).__name__}, not a Graph")
    if (new.inputs, new.outputs) != (old.inputs, old.outputs):
        raise InvalidModel("changed the inputs or outputs of the graph")
    known = {v.name for v in new.inputs} | set(new.weights)
    outputs = [v.name for v in new.outputs]
    labels: Counter[str] = Counter()
    nodes = [distinct(node, labels) for node in new.nodes]
    return new.with_nodes(tuple(sort_nodes(nodes, known, outputs, "the graph", nested=False)))
