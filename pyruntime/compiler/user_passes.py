"""Passes of users, at their places in the compiler's table, and those that one session runs (docs/extending.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, TypeVar

from pyruntime.compiler.pipeline import LEVELS, NEEDED, PASSES, Pass, Work
from pyruntime.errors import InvalidInput, InvalidModel, PyRuntimeError, SessionFailed
from pyruntime.frontend.budget import Budget
from pyruntime.ir.kernel import Kernel
from pyruntime.ir.rewriting import Rule, check_kernels, computing, rewrite_kernels
from pyruntime.onnx.graph import Graph, distinct
from pyruntime.onnx.node_order import sort_nodes

_added: list[Pass] = []  # in the order of their registration

F = TypeVar("F", bound=Callable[..., Any])


def graph_pass(name: str, *, before: str = "", after: str = "", level: str = "basic") -> Callable[[F], F]:
    """Register a function `Graph -> Graph` that rewrites the nodes of a model when a session opens it.

    before, after: the pass it stands at, by default before "lowering"; level: the optimisation level from which on it
    runs. Inputs and outputs of the graph stay as they are.
    Errors: InvalidInput for a name that is taken, or a place where no pass on the graph can stand."""

    def register(fn: F) -> F:
        _add(Pass(name, level, fn, "graph", before if before or after else "lowering", after))
        return fn

    return register


def rewrite_rule(name: str, *, before: str = "", after: str = "", level: str = "basic") -> Callable[[F], F]:
    """Register a function that is asked for each kernel that computes, and gives None to leave it, or a kernel that
    makes the same outputs, or several of which the last does.

    before, after: the pass it stands at, by default after "legalise"; level: the optimisation level from which on it
    runs. Errors: InvalidInput for a name that is taken, or a place where no rule can stand."""

    def register(fn: F) -> F:
        _add(Pass(name, level, _by_rule(name, fn), "kernels", before, after if before or after else "legalise"))
        return fn

    return register


def remove_pass(name: str) -> None:
    """Take back what `graph_pass` or `rewrite_rule` registered. Errors: InvalidInput for any other name."""
    if name not in {p.name for p in _added}:
        raise InvalidInput(f'no pass with the name "{name}" was added')
    left = [p for p in _added if p.name != name]
    _ordered(left)
    _added[:] = left


def _by_rule(name: str, rule: Rule) -> Callable[[Work], None]:
    def run(w: Work) -> None:
        for block, made in ((w.init, ()), (w.main, [t.uid for k in w.init.kernels for t in k.outputs])):
            rewrite_kernels(block, computing(_asked(rule)))
            check_kernels(block, made)

    return run


def _asked(rule: Rule) -> Rule:
    """The rule; its errors name the node of the kernel that it was asked for."""

    def ask(kernel: Kernel) -> Kernel | Sequence[Kernel] | None:
        try:
            given = rule(kernel)
        except PyRuntimeError as error:
            raise error.at(kernel.node) from None
        except Exception as error:
            raise SessionFailed(f"{type(error).__name__}: {error}", node=kernel.node) from error
        several = list(given) if isinstance(given, (list, tuple)) else [given]
        if given is not None and not (several and all(isinstance(k, Kernel) for k in several)):
            raise InvalidModel(f"gave {given!r}, not None, a kernel or kernels", node=kernel.node)
        return given

    return ask


def _add(new: Pass) -> None:
    if new.level not in LEVELS:
        raise InvalidInput(f"optimisation level {new.level!r}", hint=f"one of {', '.join(LEVELS)}")
    if new.before and new.after:
        raise InvalidInput(f'pass "{new.name}" is placed twice', hint="say before or after")
    if new.name in known_passes():
        raise InvalidInput(f'there is a pass "{new.name}" already', hint="remove_pass takes back one that was added")
    _ordered([*_added, new])
    _added.append(new)


def _ordered(added: Iterable[Pass]) -> list[Pass]:
    """The table with these passes at their places. Errors: InvalidInput for a place that is not there, or that lies on
    the wrong side of the lowering."""
    table = list(PASSES)
    for new in added:
        table.insert(_position(new, table), new)
        graph, kernels = _split_at_lowering(table)
        if new not in (graph if new.on == "graph" else kernels):
            where, rest = ("before", "a graph") if new.on == "graph" else ("after", "kernels")
            raise InvalidInput(f'pass "{new.name}" works on {rest}, so it stands {where} "lowering"')
    return table


def _position(new: Pass, table: Sequence[Pass]) -> int:
    """Before the first pass of a name, or after the last and what else was put behind it."""
    found = [n for n, p in enumerate(table) if p.name == (new.before or new.after)]
    if not found:
        names = ", ".join(dict.fromkeys(p.name for p in table))
        raise InvalidInput(
            f'pass "{new.name}" is placed at "{new.before or new.after}", which is not a pass', hint=names
        )
    if new.before:
        return found[0]
    return found[-1] + 1 + len(list(takewhile(lambda p: p.after == new.after, table[found[-1] + 1 :])))


def _split_at_lowering(table: Sequence[Pass]) -> tuple[list[Pass], list[Pass]]:
    middle = next(n for n, p in enumerate(table) if p.name == "lowering")
    return list(table[:middle]), list(table[middle + 1 :])


def is_extended() -> bool:
    """Whether a program has added passes of its own."""
    return bool(_added)


def known_passes() -> list[str]:
    """Names of all passes in the order in which they (first) run."""
    return list(dict.fromkeys(p.name for p in _ordered(_added)))


class Pipeline:
    """The passes that one session runs. Errors: InvalidInput for a level or a name that is not known, and for passes to
    leave out that are needed."""

    def __init__(self, level: str = "all", disabled: Sequence[str] = ()) -> None:
        if level not in LEVELS:
            raise InvalidInput(f"optimisation level {level!r}", hint=f"one of {', '.join(LEVELS)}")
        if isinstance(disabled, str) or not all(isinstance(name, str) for name in disabled):
            raise InvalidInput(f"passes to leave out cannot be {disabled!r}", hint="a list of names")
        for name in disabled:
            if name in NEEDED:
                raise InvalidInput(f'the pass "{name}" cannot be left out')
            if name not in known_passes():
                raise InvalidInput(f'there is no pass "{name}" to leave out', hint=", ".join(known_passes()))
        graph, kernels = _split_at_lowering(_ordered(_added))
        self._graph, self._kernels = (
            [p for p in passes if LEVELS.index(p.level) <= LEVELS.index(level) and p.name not in disabled]
            for passes in (graph, kernels)
        )

    @property
    def names(self) -> list[str]:
        """Of the passes, in order."""
        return [p.name for p in (*self._graph, *self._kernels)]

    def graph(self, graph: Graph) -> Graph:
        """The graph after the passes on it; to be called once for a model."""
        for p in self._graph:
            with _named(p):
                graph = _checked(p.run(graph), graph)
        return graph

    def kernels(self, work: Work, budget: Budget) -> None:
        """Run the passes on kernels."""
        for p in self._kernels:
            budget.check(f'at the pass "{p.name}"')
            with _named(p):
                p.run(work)


@contextmanager
def _named(p: Pass) -> Iterator[None]:
    """Errors of a user's pass say which it was."""
    try:
        yield
    except PyRuntimeError as error:
        if p.added:
            error.message = f'pass "{p.name}": {error.message}'
        raise
    except Exception as error:
        if p.added:
            raise SessionFailed(f'pass "{p.name}" failed: {type(error).__name__}: {error}') from error
        raise


def _checked(new: object, old: Graph) -> Graph:
    """Errors: InvalidModel for what is no graph, or one with other inputs or outputs, or whose names do not fit."""
    if not isinstance(new, Graph):
        raise InvalidModel(f"returned {type(new).__name__}, not a Graph")
    if (new.inputs, new.outputs) != (old.inputs, old.outputs):
        raise InvalidModel("changed the inputs or outputs of the graph")
    known = {v.name for v in new.inputs} | set(new.weights)
    outputs = [v.name for v in new.outputs]
    labels: Counter[str] = Counter()
    nodes = [distinct(node, labels) for node in new.nodes]
    return new.with_nodes(tuple(sort_nodes(nodes, known, outputs, "the graph", nested=False)))


__all__ = ["Pipeline", "graph_pass", "is_extended", "known_passes", "remove_pass", "rewrite_rule"]
