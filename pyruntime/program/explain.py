"""Reports what became of each node of a model: evaluates the table in the Program's header for one run.

web/run/explain.js evaluates the same table; pyruntime/emit/explain_table.py writes it; docs/explain.md describes the
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.program.dims import compile_dim

Json = dict[str, Any]
# A row of the table omits entries with these values.
EMPTY: Json = {
    "place": "", "kernels": [], "calls": 0, "fused": [], "into": "", "work": 0, "crossing": 0, "why": "",
}  # fmt: skip


def explain(header: Mapping[str, Any], env: Mapping[str, int] | None = None) -> Json:
    """The report. env: values of symbols; numbers of work and bytes that depend on other symbols are None."""
    table = header["explain"]
    nodes = [{**EMPTY, **row} for row in table["nodes"]]
    for row in nodes:
        row |= {key: evaluate(row[key], env or {}) for key in ("work", "crossing")}
    return {**table, "nodes": nodes}


def evaluate(d: Any, env: Mapping[str, int]) -> int | None:
    """The value of a serialised dim, or None if `env` lacks one of its symbols."""
    try:
        return compile_dim(d)(env)
    except KeyError:
        return None


__all__ = ["EMPTY", "Json", "evaluate", "explain"]
