"""Seed nodes of operators that the official suite lacks (Microsoft's, ai.onnx.ml's, early ones), from the tables of the
operators' own tests."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from functools import cache

from fuzz.draw import Draw
from fuzz.node import Node
from kit.conformance.cases import CACHE
from kit.models import ROOT
from kit.zoo import replacing

COPY = CACHE / "nodes.pickle"


def random_node(draw: Draw) -> Node:
    """A fresh node of one of these operators."""
    node = draw.pick(draw.pick(tables()))
    return replace(node, attributes=dict(node.attributes), inputs=[*node.inputs], has_output=[*node.has_output])


@cache
def tables() -> list[list[Node]]:
    """Nodes by operator. A separate process imports the tables, and again when they have changed."""
    newest = max(path.stat().st_mtime for path in (ROOT / "tests" / "ops").glob("*.py"))
    if not COPY.exists() or COPY.stat().st_mtime < newest:
        with replacing(COPY) as part:
            subprocess.run([sys.executable, "-m", "tests.ops.seed_nodes", str(part)], cwd=ROOT, check=True)
    nodes = [Node(*each) for each in pickle.loads(COPY.read_bytes())]
    found: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        found.setdefault((node.domain, node.op), []).append(node)
    return [found[key] for key in sorted(found)]
