"""What the compiler made of a model: the table of the Program's header with its values in one run.

web/run/explain.js evaluates the same table; pyruntime/emit/explain_table.py makes it; docs/explain.md describes the
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.program.dims import compile_dim

Json = dict[str, Any]
# What a row of the table leaves out where it is so.
EMPTY: Json = {
    "place": "", "kernels": [], "calls": 0, "fused": [], "into": "", "work": 0, "crossing": 0, "why": "",
}  # fmt: skip


def explain(header: Mapping[str, Any], env: Mapping[str, int] | None = None) -> Json:
    """`env` gives the symbols their values, for the numbers of work and bytes; those it does not tell are None."""
    table = header["explain"]
    nodes = [{**EMPTY, **row} for row in table["nodes"]]
    for row in nodes:
        row |= {key: evaluate(row[key], env or {}) for key in ("work", "crossing")}
    return {**table, "nodes": nodes}


def evaluate(d: Any, env: Mapping[str, int]) -> int | None:
    """The value of a serialised dim, or None where `env` lacks one of its symbols."""
    try:
        return compile_dim(d)(env)
    except KeyError:
        return None


__all__ = ["EMPTY", "Json", "evaluate", "explain"]
