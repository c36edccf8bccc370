"""The rooms of the house: which folder may import which, and who does import whom.

tests/test_house.py holds the code to these rules, scripts/draw_house.py draws them.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NOT_OURS = {".git", ".venv", "node_modules", "build", "dist", "__pycache__", ".cache"}

# What each room (a folder, or a module at the top of the engine) may import besides itself. One direction, no cycles.
MAY_IMPORT = {
    "ort_errors": "",
    "errors": "ort_errors",
    "ir": "errors",
    "mathlib": "ir",
    "host": "errors ir",
    "onnx": "errors ir",
    "codegen": "errors ir",
    "frontend": "errors ir host onnx",
    "ops": "errors ir host frontend",
    "passes": "errors ir onnx codegen",
    "providers.wasm": "errors ir mathlib codegen",
    "providers.webgpu": "errors ir mathlib codegen",
    "placement": "errors ir codegen",
    "program": "errors ir",
    "emit": "ir onnx codegen frontend placement program",
    "compiler": "errors ir onnx codegen frontend ops passes placement emit program",
    "browser": "errors ir host onnx codegen frontend passes placement compiler providers.wasm providers.webgpu",
    "native": "errors ir host onnx codegen frontend placement program compiler providers.wasm providers.webgpu",
    "api": "ort_errors errors ir onnx frontend placement native",
    "onnxruntime": "api",
    "pyodide": "errors ir onnx frontend placement browser",
    "cli": "errors onnx frontend ops placement native pyruntime",
    "pyruntime": "errors frontend ops placement compiler native api pyodide",
}

# The same of the rooms of web/, and of its two entry files.
WEB_MAY_IMPORT = {
    "common": "",
    "storage": "common",
    "threads": "common",
    "run": "common threads",
    "gpu": "common run",
    "session": "common run gpu",
    "worker": "common storage threads run gpu session",
    "page": "common storage threads run gpu session",
    "offline": "common storage page",
    "node": "common",
    "worker.js": "threads worker",
    "service_worker.js": "common worker",
    "index.js": "common page",
    "node.js": "node index.js",
    "pyodide.js": "common run worker",
}
# No type of these rooms is named in others: a JSDoc type is an arrow, too.
WEB_ENDS = {"page", "worker"}

# What each folder beside the engine may import of the others; all of them may import the engine.
TOOLS = {
    "kit": "",
    "fuzz": "kit",
    "bench": "kit",
    "demo": "kit",
    "e2e": "kit fuzz bench",
    "tests": "kit scripts fuzz bench",
    "scripts": "kit",
}


class Import(NamedTuple):
    """module: the project's module or top-level package; lazy: inside a function."""

    module: str
    lazy: bool


@cache
def files() -> list[Path]:
    """Every file of the project, relative to its root, without what is installed or built."""
    found = []
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [name for name in subfolders if name not in NOT_OURS and not name.endswith(".egg-info")]
        found += [Path(folder, name).relative_to(ROOT) for name in names if name not in NOT_OURS]
    return sorted(found)


@cache
def text_of(path: Path) -> str:
    return (ROOT / path).read_text(errors="replace")


def dotted(folder: str) -> dict[str, Path]:
    """Dotted name -> file, of the Python modules in a folder."""
    paths = [path for path in files() if path.suffix == ".py" and path.parts[0] == folder]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, of the engine and of the providers, which are installed as pyruntime.providers."""
    return dotted("pyruntime") | {f"pyruntime.{name}": path for name, path in dotted("providers").items()}


@cache
def everything() -> dict[str, Path]:
    """The same, with all folders beside the engine."""
    return modules() | {name: path for folder in TOOLS for name, path in dotted(folder).items()}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text_of(path), str(path))


@cache
def imports(name: str) -> tuple[Import, ...]:
    """What a module imports; imports for type checkers only do not count."""
    path = everything()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.expr):
            return  # expressions hold no imports, and are most of a tree
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base]).rstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield Import(inner if inner in everything() else base, lazy)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, lazy or inside)

    return tuple(visit(tree(path), False))


def room_of(module: str) -> str:
    """The room of a module of the engine: "ir", "providers.wasm", …; of `pyruntime` itself "pyruntime"."""
    parts = module.split(".")[1:] or ["pyruntime"]
    return ".".join(parts[:2]) if parts[0] == "providers" else parts[0]


@cache
def web_imports() -> dict[Path, tuple[set[Path], set[Path]]]:
    """Each module of web/: what it imports when it runs, and the modules whose types it names."""
    found = {}
    for path in files():
        if path.parts[0] != "web" or path.suffix != ".js":
            continue
        text = (ROOT / path).read_text()
        comments = r"/\*.*?\*/"
        named = re.findall(r"import\('(\.[^']+)'\)", " ".join(re.findall(comments, text, re.DOTALL)))
        code = re.sub(comments, "", text, flags=re.DOTALL)
        loaded = re.findall(r"(?:from|import)\s*\(?\s*'(\.[^']+)'", code)
        resolve = lambda names: {Path(os.path.normpath(path.parent / name)) for name in names} - {path}  # noqa: B023, E731
        found[path] = resolve(loaded), resolve(named)
    return found


def web_room(path: Path) -> str:
    return path.parts[1]
