"""The rooms of the house: which folder may import which, and which modules import each other.

tests/test_house.py checks these rules, scripts/draw_house.py draws the rooms, scripts/house_figures.py counts them.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parents[1]
INSTALLED_IN = {"providers": "pyruntime."}  # pyruntime/providers is a link to the folder at the top
BUILT = {
    "web/common/program.js",
    "web/common/linear_memory.js",
    "web/worker/programs/program_schema.js",
    "web/page/options/engine_options.js",
    "web/page/training/training_options.js",
}

# What each room (a folder, or a module at the top of the engine) may import besides itself. One direction, no cycles.
MAY_IMPORT = {
    "ort_errors": "",
    "errors": "ort_errors",
    "options": "errors",
    "arguments": "errors options",
    "ir": "errors",
    "mathlib": "ir",
    "host": "errors ir onnx",
    "onnx": "errors ir",
    "codegen": "errors ir",
    "frontend": "errors ir host onnx",
    "ops": "errors ir host onnx frontend",
    "passes": "errors ir onnx mathlib codegen runtime",
    "providers.wasm": "errors ir mathlib codegen",
    "providers.webgpu": "errors ir mathlib codegen runtime",
    "placement": "errors ir host codegen providers",
    "program": "errors",
    "runtime": "errors codegen program",
    "emit": "ir onnx codegen frontend placement program runtime",
    "compiler": "errors options ir onnx codegen frontend ops passes placement emit program runtime",
    "session": "errors options ir onnx frontend passes compiler runtime",
    "quantization": "arguments errors ir onnx",
    "training": "arguments errors ir host onnx frontend ops program runtime session",
    "exports": "errors ir host onnx placement providers program compiler providers.webgpu",
    "page_providers": "errors ir host codegen emit placement providers runtime",
    "browser": "errors options ir host onnx codegen frontend placement runtime compiler session training "
    "quantization exports page_providers providers.wasm providers.webgpu",
    "native": "arguments errors options ir host onnx codegen frontend placement program runtime compiler session "
    "training quantization exports providers providers.wasm providers.webgpu",
    "api": "ort_errors arguments errors options ir onnx frontend placement providers training native runtime session",
    "onnxruntime": "ort_errors errors options ir onnx frontend api session training pyodide",
    "pyodide": "errors options ir host onnx frontend placement compiler program runtime session browser training "
    "quantization exports providers.webgpu",
    "c_library": "errors ir onnx frontend native pyruntime",
    "serving": "errors frontend session api pyruntime",
    "cli": "errors options training onnx frontend ops placement providers native runtime c_library serving pyruntime",
    "provider_models": "ir onnx",
    "testing": "cli",
    "provider_check": "cli codegen ir onnx provider_models pyruntime",
    "pyruntime": "errors codegen frontend ops placement compiler session training native api pyodide",
}

# The same for the rooms of web/ and its entry files. Types that JSDoc names count as imports.
WEB_MAY_IMPORT = {
    "common": "",
    "runtime": "common",
    "storage": "common",
    "threads": "common",
    "run": "common runtime threads",
    "gpu": "common runtime run",
    "session": "common runtime run gpu",
    "worker": "common runtime storage threads run gpu session",
    "page": "common runtime storage threads run gpu session",
    "extras": "common runtime storage",
    "offline": "common storage page",
    "node": "common",
    "worker.js": "threads worker",
    "service_worker.js": "common worker",
    "index.js": "common page run",
    "node.js": "node index.js",
    "pyodide.js": "common run gpu worker",
    "module.js": "common run session page worker",
    "provider_check.js": "",
}

# What each folder beside the engine may import of the others. All of them may import the engine.
TOOLS = {
    "kit": "",
    "fuzz": "kit scripts",
    "bench": "kit",
    "demo": "kit",
    "e2e": "kit fuzz bench",
    "tests": "kit scripts fuzz bench",
    "scripts": "kit",
}


class Import(NamedTuple):
    """module: the project's module or top-level package; lazy: importing the importer does not load it, because it is
    imported inside a function or for type checkers only."""

    module: str
    lazy: bool


@cache
def files() -> list[Path]:
    """Every file of the project, relative to its root: those that git tracks, and new ones that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return sorted(Path(name) for name in set(listed.split("\0")) if (ROOT / name).is_file())


def is_built(path: Path) -> bool:
    """Whether scripts/javascript writes this file."""
    return path.as_posix() in BUILT or path.parts[:2] == ("web", "runtime")


@cache
def text_of(path: Path) -> str:
    return (ROOT / path).read_text(errors="replace")


def dotted(folder: str) -> dict[str, Path]:
    """Dotted name -> file, of the Python modules in a folder at the top."""
    paths = [path for path in files() if path.suffix == ".py" and path.parts[0] == folder]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return {INSTALLED_IN.get(folder, "") + name: path for name, path in zip(names, paths, strict=True)}


@cache
def modules() -> dict[str, Path]:
    """Those of the engine and of the providers."""
    return dotted("pyruntime") | dotted("providers")


@cache
def everything() -> dict[str, Path]:
    """Those of all folders."""
    return modules() | {name: path for folder in TOOLS for name, path in dotted(folder).items()}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text_of(path), str(path))


@cache
def imports(name: str) -> tuple[Import, ...]:
    """What a module imports."""
    path = everything()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.expr):
            return  # expressions hold no imports, and are most of a tree
        lazy = lazy or isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
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
    """For each module of web/: the modules that it loads, and those whose types its JSDoc names."""
    found = {}
    built = [path.relative_to(ROOT) for path in (ROOT / "web").rglob("*.js")]
    for path in (*files(), *filter(is_built, built)):
        if path.parts[0] != "web" or path.suffix != ".js":
            continue
        text = (ROOT / path).read_text()
        comments = r"/\*.*?\*/"
        named = re.findall(r"import(?:\(| \{[^}]*\} from )'(\.[^']+)'", " ".join(re.findall(comments, text, re.DOTALL)))
        code = re.sub(comments, "", text, flags=re.DOTALL)
        loaded = re.findall(r"(?:from|import)\s*\(?\s*'(\.[^']+)'", code)
        resolve = lambda names: {Path(os.path.normpath(path.parent / name)) for name in names} - {path}  # noqa: B023, E731
        found[path] = resolve(loaded), resolve(named)
    return found


def web_room(path: Path) -> str:
    return path.parts[1]


@cache
def folder_arrows() -> dict[Path, dict[str, set[str]]]:
    """For each folder with sub-folders: which of these and of the modules beside them import which others."""
    found: dict[Path, dict[str, set[str]]] = {}
    pairs = [(name, i.module) for name in everything() for i in imports(name) if i.module in everything()]
    files_of = [(everything()[a], everything()[b]) for a, b in pairs]
    files_of += [(path, other) for path, (loaded, _) in web_imports().items() for other in loaded]
    for a, b in files_of:
        common = Path(os.path.commonpath([a, b]))
        first, second = (path.relative_to(common).parts for path in (a, b))
        is_inside = b.name != "__init__.py" and a != b  # a package is no part of itself
        if common.parts and is_inside and (len(first) > 1 or len(second) > 1):
            found.setdefault(common, {}).setdefault(first[0], set()).add(second[0])
    return found


def circles(graph: Mapping[T, set[T]]) -> set[T]:
    """The nodes that can be reached from themselves."""

    def reached(start: T) -> set[T]:
        seen: set[T] = set()
        border = [start]
        while border:
            new = graph.get(border.pop(), set()) - seen
            seen |= new
            border += new
        return seen

    return {node for node in graph if node in reached(node)}
