"""Reports how each node of a model was compiled: evaluates the table in the Program's header for one run.

pyruntime/emit/explain_table.py writes the table; docs/explain.md describes the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.program.dims import Env, compile_dim, symbols
from pyruntime.program.types import Dim, ExplainedNode, Header


def explain(header: Header, env: Env) -> Mapping[str, Any]:
    """The report. env: values of symbols; numbers of work and bytes that depend on other symbols are None."""
    table = header["explain"]
    return {
        "operators": table["operators"],
        "placement": table["placement"],
        "kernels": table["kernels"],
        "functions": table["functions"],
        "steps": table["steps"],
        "code": table["code"],
        "nodes": [_node(row, env) for row in table["nodes"]],
    }


def _node(row: ExplainedNode, env: Env) -> Mapping[str, Any]:
    """A row with all entries: the table omits those that are empty or 0."""
    return {
        "node": row["node"],
        "op": row["op"],
        "place": row.get("place", ""),
        "kernels": row.get("kernels", []),
        "calls": row.get("calls", 0),
        "fused": row.get("fused", []),
        "into": row.get("into", ""),
        "work": evaluate(row.get("work", 0), env),
        "crossing": evaluate(row.get("crossing", 0), env),
        "why": row.get("why", ""),
    }


def evaluate(dim: Dim, env: Env) -> int | None:
    """The value of a serialised dim, or None if `env` lacks one of its symbols."""
    return compile_dim(dim)(env) if symbols(dim) <= env.keys() else None
