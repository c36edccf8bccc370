"""Reports how each node of a model was compiled: evaluates the table in the Program's header for one run.

pyruntime/emit/explain_table.py writes the table; docs/explain.md describes the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.program.dims import Env, compile_dim, symbols
from pyruntime.program.types import Dim, ExplainedNode, Header
from pyruntime.runtime.recovery import Move


def explain(header: Header, env: Env, moved: Sequence[Move] | None = None) -> Mapping[str, Any]:
    """The report. env: values of symbols; numbers of work and bytes that depend on other symbols are None; moved: what
    has left the GPU after faults."""
    table = header["explain"]
    found = [] if moved is None else moved
    whole = [move.reason for move in found if move.node == ""]
    return {
        "operators": table["operators"],
        "placement": table["placement"],
        "kernels": table["kernels"],
        "functions": table["functions"],
        "steps": table["steps"],
        "code": table["code"],
        "moved": [{"node": move.node, "reason": move.reason, "to": move.to} for move in found],
        "nodes": [_node(row, env, whole[0] if len(whole) > 0 else "") for row in table["nodes"]],
    }


def _node(row: ExplainedNode, env: Env, why: str) -> Mapping[str, Any]:
    """A row with all entries: the table omits those that are empty or 0. why: why all nodes have left the GPU"""
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
        "why": row.get("why", why if row.get("calls", 0) > 0 else ""),
        "loop": row.get("loop", ""),
    }


def evaluate(dim: Dim, env: Env) -> int | None:
    """The value of a serialised dim, or None if `env` lacks one of its symbols."""
    return compile_dim(dim)(env) if symbols(dim) <= env.keys() else None
