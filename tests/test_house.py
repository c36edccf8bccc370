"""The rules of the house: who imports whom, no cycles, sizes, exported names, nothing of any one machine."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
NOT_OURS = {".git", ".venv", "node_modules", "build", "dist", "__pycache__", ".cache"}

# What each room (a folder, or a module at the top of the engine) may import besides itself. One direction, no cycles.
MAY_IMPORT = {
    "errors": "",
    "ir": "errors",
    "mathlib": "ir",
    "host": "errors ir",
    "onnx": "errors ir",
    "codegen": "ir",
    "frontend": "errors ir host onnx",
    "ops": "errors ir host onnx frontend",
    "passes": "errors ir onnx codegen",
    "providers.wasm": "errors ir mathlib codegen",
    "providers.webgpu": "errors ir mathlib codegen",
    "program": "errors ir onnx codegen frontend ops passes providers.webgpu",
    "browser": "errors ir host onnx frontend passes program providers.wasm providers.webgpu",
    "native": "errors ir host onnx frontend program providers.wasm providers.webgpu",
    "cli": "errors onnx frontend ops native pyruntime",
    "pyruntime": "errors frontend ops program native",
}

# The same of the rooms of web/, and of its two entry files.
WEB_MAY_IMPORT = {
    "common": "",
    "threads": "common",
    "run": "common threads",
    "gpu": "common run",
    "worker": "common threads run gpu",
    "page": "common threads run",
    "worker.js": "threads worker",
    "index.js": "common page",
}
# No type of these rooms is named in others: a JSDoc type is an arrow, too.
WEB_ENDS = {"page", "worker"}

# Run on the desktop only, so these may import NumPy, wasmtime and wgpu; the rest imports them inside functions at most.
NATIVE_ONLY = re.compile(r"pyruntime\.(native|cli)(\..*)?|pyruntime\.providers\.\w+\.(wasmtime|wgpu)_\w+")

# What `import pyruntime` offers; a change here is a change for users.
EXPORTED = """ExecutionMode GraphOptimizationLevel InferenceSession InvalidInput InvalidModel OutOfMemory PyRuntimeError
RunOptions SessionFailed SessionOptions ShapeError Terminated UnsupportedOp elementwise get_available_providers
get_device graph_pass op remove_pass rewrite_rule""".split()

FILE_LIMIT, FUNCTION_LIMIT = 500, 80
LONG_FILES: dict[str, str] = {}  # path -> why it may be longer
LONG_FUNCTIONS: dict[str, str] = {}  # path:function -> why

MACHINE_WORDS = ("../" + "shared", "/" + "work/", "/" + "root/")
TEXT = {".py", ".js", ".mjs", ".cjs", ".ts", ".json", ".toml", ".md", ".txt", ".sh", ".html", ".css", ".wgsl", ""}


# What each folder beside the engine may import of the others; all of them may import the engine.
TOOLS = {"kit": "", "bench": "kit", "demo": "kit", "e2e": "kit", "tests": "kit scripts", "scripts": ""}


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


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a tree, inner ones and methods too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        if not isinstance(child, ast.expr):
            yield from functions(child)


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


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_point_one_way(room: str) -> None:
    allowed = [room, *MAY_IMPORT[room].split()]
    wrong = [
        f"{name} imports {found.module}"
        for name in modules()
        if room_of(name) == room
        for found in imports(name)
        if found.module.split(".")[0] == "pyruntime" and room_of(found.module) not in allowed
    ]
    assert not wrong, "\n".join(wrong)
    assert "providers" not in {found.module.split(".")[0] for name in modules() for found in imports(name)}


@pytest.mark.parametrize("folder", TOOLS)
def test_folders_beside_the_engine_import_one_way(folder: str) -> None:
    foreign = {*TOOLS, "providers"} - {folder, *TOOLS[folder].split()}
    names = dotted(folder)
    wrong = [
        f"{name} imports {found.module}"
        for name in names
        for found in imports(name)
        if found.module.split(".")[0] in foreign
    ]
    assert not wrong, "\n".join(wrong)


def test_every_room_has_its_rule() -> None:
    assert {room_of(name) for name in modules()} - {"providers"} == set(MAY_IMPORT)
    TopologicalSorter({room: rule.split() for room, rule in MAY_IMPORT.items()}).prepare()


def test_no_import_cycles() -> None:
    names = everything()
    graph = {name: {found.module for found in imports(name)} & names.keys() - {name} for name in names}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


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


@pytest.mark.parametrize("room", WEB_MAY_IMPORT)
def test_imports_of_web_point_one_way(room: str) -> None:
    allowed = {room, *WEB_MAY_IMPORT[room].split()}
    wrong = []
    for path, (loaded, named) in web_imports().items():
        assert loaded | named <= web_imports().keys(), f"{path} imports what is not there"
        if web_room(path) == room:
            wrong += [f"{path} imports {other}" for other in loaded if web_room(other) not in allowed]
            ends = WEB_ENDS - allowed
            wrong += [f"{path} names a type of {other}" for other in named if web_room(other) in ends]
    assert not wrong, "\n".join(wrong)


def test_web_has_no_import_cycles() -> None:
    assert {web_room(path) for path in web_imports()} == set(WEB_MAY_IMPORT)
    TopologicalSorter({room: rule.split() for room, rule in WEB_MAY_IMPORT.items()}).prepare()
    try:
        TopologicalSorter({path: loaded for path, (loaded, _) in web_imports().items()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(map(str, error.args[1])))


def test_the_browser_needs_the_standard_library_only() -> None:
    wrong = []
    for name in modules():
        if NATIVE_ONLY.fullmatch(name):
            continue
        for found in imports(name):
            top = found.module.partition(".")[0]
            ours = top == "pyruntime"
            third_party = not ours and top not in sys.stdlib_module_names
            if not found.lazy and (third_party or NATIVE_ONLY.fullmatch(found.module)):
                wrong.append(f"{name} imports {found.module} outside of a function")
    assert not wrong, "\n".join(wrong)


def test_importing_loads_nothing_else() -> None:
    names = [name for name in modules() if not NATIVE_ONLY.fullmatch(name)]
    code = f"import sys, {', '.join(names)}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert not {"numpy", "wasmtime", "wgpu", "onnx"} & set(run.stdout.split())


def test_exported_names_are_pinned() -> None:
    import pyruntime

    assert sorted(getattr(pyruntime, "__all__", [])) == sorted(EXPORTED)


def test_files_are_short() -> None:
    counts = {
        str(path): len(text_of(path).splitlines())
        for path in files()
        if path.suffix in {".py", ".js", ".mjs", ".ts", ".wgsl", ".sh"}
    }
    wrong = [
        f"{path}: {count} lines" for path, count in counts.items() if count > FILE_LIMIT and path not in LONG_FILES
    ]
    assert not wrong, "\n".join(wrong)
    stale = [path for path in LONG_FILES if counts.get(path, 0) <= FILE_LIMIT]
    assert not stale, f"no longer long: {stale}"


def test_functions_are_short() -> None:
    counts = {
        f"{path}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in files()
        if path.suffix == ".py"
        for node in functions(tree(path))
    }
    wrong = [f"{n}: {count} lines" for n, count in counts.items() if count > FUNCTION_LIMIT and n not in LONG_FUNCTIONS]
    assert not wrong, "\n".join(wrong)
    stale = [name for name in LONG_FUNCTIONS if counts.get(name, 0) <= FUNCTION_LIMIT]
    assert not stale, f"no longer long: {stale}"


def test_nothing_of_one_machine() -> None:
    wrong = [
        f"{path}: {word}" for path in files() if path.suffix in TEXT for word in MACHINE_WORDS if word in text_of(path)
    ]
    assert not wrong, "\n".join(wrong)


def test_locks_name_no_addresses() -> None:
    npm = [path for path in files() if path.name in ("package-lock.json", "npm-shrinkwrap.json")]
    assert not [path for path in npm if '"resolved": "http' in (ROOT / path).read_text()]
    pip = [path for path in files() if re.fullmatch(r"(requirements|constraints).*\.txt", path.name)]
    assert not [path for path in pip if re.search(r"://|^-", (ROOT / path).read_text(), re.MULTILINE)]


def test_models_hold_no_paths() -> None:
    paths = re.compile(rb"/(home|root|work|usr|tmp|opt|Users)/[\w.-]|\w\.py[\":, ]|[A-Z]:\\\\\w")
    wrong = {
        str(path): found.group()
        for path in files()
        if path.suffix == ".onnx" and (found := paths.search((ROOT / path).read_bytes()))
    }
    assert not wrong


def test_the_commands_in_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        text = path.read_text()
        named = set(re.findall(r"^make ([a-z]+)", text, re.MULTILINE)) | set(re.findall(r"`make ([a-z]+)", text))
        assert named <= targets, path.name
        links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
        assert not [link for link in links if not (ROOT / link).exists()], path.name
