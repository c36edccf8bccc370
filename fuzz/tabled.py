"""Nodes to begin from of operators that the official suite leaves out: Microsoft's, ai.onnx.ml's and early ones, of the
tables in the operators' own tests."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from fuzz.draw import Draw
from fuzz.node import Node
from kit.models import ROOT


def drawn(draw: Draw) -> Node:
    """A fresh node of one of these operators."""
    node = draw.pick(draw.pick(tables()))
    return replace(node, attributes=dict(node.attributes), inputs=[*node.inputs], wanted=[*node.wanted])


@cache
def tables() -> list[list[Node]]:
    """By operator."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "nodes.pickle")
        subprocess.run([sys.executable, "-m", "tests.ops.seed_nodes", str(path)], cwd=ROOT, check=True, timeout=120)
        nodes = [Node(*each) for each in pickle.loads(path.read_bytes())]
    found: dict[tuple[str, str], list[Node]] = {}
    for node in nodes:
        found.setdefault((node.domain, node.op), []).append(node)
    return [found[key] for key in sorted(found)]
