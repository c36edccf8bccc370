"""The rules of the house: imports one way, sizes, exported names, docs that name what exists, nothing that belongs to
one machine."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from kit import twins
from kit.docs import FILES
from kit.house import (
    INSTALLED_IN,
    MAY_IMPORT,
    ROOT,
    TOOLS,
    WEB_MAY_IMPORT,
    circles,
    dotted,
    everything,
    files,
    folder_arrows,
    imports,
    modules,
    room_of,
    text_of,
    tree,
    web_imports,
    web_room,
)  # fmt: skip
from scripts import draw_house

# Run on the desktop only, so these may import NumPy, onnx, wasmtime and wgpu; others import them in functions at most.
NATIVE_ONLY = re.compile(
    r"pyruntime\.(api|c_library|cli|native|onnxruntime|serving|provider_(check|models)|testing)(\..*)?"
    r"|pyruntime\.providers\.\w+\.(wasmtime|wgpu)_\w+|pyruntime\.providers\.wasm\.native(\..*)?"
)

# What `import pyruntime` offers; a change here is a change for users.
EXPORTED = """
ArrayProvider Batcher ExecutionMode GpuTensor GraphOptimizationLevel IOBinding InferenceSession InvalidInput
InvalidModel LimitExceeded LoraAdapter NotDifferentiable NotSupported OrtValue OutOfMemory PyRuntimeError RunOptions
SessionFailed SessionOptions ShapeError Terminated TextGenerator TrainingSession UnsupportedOp
compare_models elementwise export_to_opentelemetry get_available_providers get_device graph_pass inspect off
on op prune quantize quantize_static register_provider remove_pass rewrite_rule save_optimized set_memory_limit
stats
""".split()

FILE_LIMIT, FUNCTION_LIMIT, JS_FUNCTION_LIMIT = 500, 80, 40
ANY_LIMIT = 66  # uses of the type `any` in web/: lower it when there are fewer
LONG_FILES: dict[str, str] = {}  # path -> why it may be longer
LONG_FUNCTIONS: dict[str, str] = {}  # path:function -> why

MACHINE_WORDS = ("../" + "shared", "/" + "work/", "/" + "root/")
TEXT = {".py", ".js", ".mjs", ".cjs", ".ts", ".json", ".toml", ".md", ".txt", ".sh", ".html", ".css", ".wgsl", ""}


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a tree, inner ones and methods too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        if not isinstance(child, ast.expr):
            yield from functions(child)


def test_checks_of_types_make_no_unions() -> None:
    """`A | B` is made anew at each call: 6 µs in a browser, where a tuple takes 0.6."""
    calls = [(name, c) for name, path in modules().items() for c in ast.walk(tree(path)) if isinstance(c, ast.Call)]
    made = [
        f"{name}, line {c.lineno}: isinstance takes a tuple"
        for name, c in calls
        if isinstance(c.func, ast.Name) and c.func.id == "isinstance" and isinstance(c.args[1], ast.BinOp)
    ]
    assert not made, "\n".join(made)


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


@pytest.mark.parametrize("folder", TOOLS)
def test_folders_beside_the_engine_import_one_way(folder: str) -> None:
    foreign = TOOLS.keys() - {folder, *TOOLS[folder].split()}
    wrong = [
        f"{name} imports {found.module}"
        for name in dotted(folder)
        for found in imports(name)
        if found.module.split(".")[0] in foreign
    ]
    assert not wrong, "\n".join(wrong)


def test_installed_folders_are_imported_by_their_installed_name() -> None:
    assert not INSTALLED_IN.keys() & {i.module.split(".")[0] for name in everything() for i in imports(name)}


@pytest.mark.parametrize("room", ["passes", "placement", "emit"])
def test_the_compiler_names_no_provider(room: str) -> None:
    """Kernels go to providers by what these say; the engine's own have no place in the code that asks."""
    names = [name for name in modules() if room_of(name) == room]
    nodes = [(name, node) for name in names for node in ast.walk(tree(modules()[name]))]
    texts = [(name, x.value) for name, x in nodes if isinstance(x, ast.Constant) and isinstance(x.value, str)]
    found = [f"{name}: {text!r}" for name, text in texts if re.search(r"\b(wasm|webgpu)\b", text)]
    assert texts and not found, "\n".join(found)


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


@pytest.mark.parametrize("folder", sorted(folder_arrows()))
def test_sub_folders_import_one_way(folder: Path) -> None:
    assert not circles(folder_arrows()[folder])


@pytest.mark.parametrize("room", WEB_MAY_IMPORT)
def test_imports_of_web_point_one_way(room: str) -> None:
    allowed = {room, *WEB_MAY_IMPORT[room].split()}
    wrong = []
    for path, (loaded, named) in web_imports().items():
        assert loaded | named <= web_imports().keys(), f"{path} imports what is not there"
        if web_room(path) == room:
            wrong += [f"{path} imports {other}" for other in loaded | named if web_room(other) not in allowed]
    assert not wrong, "\n".join(wrong)


def test_web_has_no_import_cycles() -> None:
    assert {web_room(path) for path in web_imports()} | {"runtime"} == set(WEB_MAY_IMPORT)
    TopologicalSorter({room: rule.split() for room, rule in WEB_MAY_IMPORT.items()}).prepare()
    assert not circles({path: loaded | named for path, (loaded, named) in web_imports().items()})


def test_the_drawings_of_the_house_are_fresh() -> None:
    """`python -m scripts.draw_house` writes the tree, the picture, and the table of files in both languages."""
    stale = [str(file) for file, text in draw_house.drawn().items() if text != text_of(file)]
    assert not stale, "python -m scripts.draw_house"


def test_files_in_both_languages_name_each_other() -> None:
    """As in the table of kit/twins.py, both ways."""
    assert not [*twins.wrong()]


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


def test_functions_of_javascript_are_short() -> None:
    paths = [str(path) for path in files() if path.suffix in {".js", ".mjs"}]
    command = ["node", "--no-warnings", "tests/web/function_lengths.mjs", *paths]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    counts: dict[str, int] = json.loads(run.stdout)
    assert len(counts) > len(paths), "functions are found"
    assert not {name: count for name, count in counts.items() if count > JS_FUNCTION_LIMIT}


def test_few_types_of_javascript_are_any() -> None:
    tracked = subprocess.run(["git", "ls-files", "web/*.js"], cwd=ROOT, capture_output=True, text=True, check=True)
    comments = {
        path: re.findall(r"/\*\*.*?\*/", (ROOT / path).read_text(), re.DOTALL) for path in tracked.stdout.split()
    }
    types = r"@(?:type|param|returns|property|typedef|template|this)[^{]*(\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})"
    uses = {
        path: sum(len(re.findall(r"\bany\b", found)) for found in re.findall(types, " ".join(texts)))
        for path, texts in comments.items()
    }
    assert sum(uses.values()) <= ANY_LIMIT, {path: count for path, count in uses.items() if count}
    assert re.search(types, "/** @type {Map<string, any>} */"), "the pattern finds types"


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


def test_messages_name_no_file_of_the_documentation() -> None:
    """A user has the package and no checkout. Errors name `help` (pyruntime/errors.py); docstrings and comments may."""
    wrong = []
    for path in files():
        if path.parts[0] in ("pyruntime", "providers", "web") and path.suffix in (".py", ".js"):
            text = text_of(path)
            code = uncommented(text) if path.suffix == ".js" else "\n".join(texts_of(text))
            wrong += [f"{path}: {found}" for found in re.findall(r"\b(?:docs/[\w/-]+|[A-Z]+)\.md\b", code)]
    assert not wrong


def uncommented(javascript: str) -> str:
    return re.sub(r"/\*.*?\*/|(?:^|\s)//[^\n]*", "", javascript, flags=re.DOTALL)


def texts_of(python: str) -> list[str]:
    """The texts in code, without docstrings."""
    tree = ast.parse(python)
    apart = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in apart]
    return [node.value for node in texts if isinstance(node.value, str)]


def test_the_commands_in_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        text = path.read_text()
        named = set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)) | set(re.findall(r"`make ([a-z-]+)", text))
        assert named <= targets, path.name


def anchors(file: Path) -> set[str]:
    """The names by which links address the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def is_dead(page: Path, link: str) -> bool:
    """link: a relative path, an anchor, or both, on this page."""
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return not target.exists() or bool(anchor and target.suffix == ".md" and anchor not in anchors(target))


@pytest.mark.parametrize("file", FILES)
def test_links_and_files_exist(file: str) -> None:
    page = ROOT / file
    text = page.read_text()
    assert not [link for link in re.findall(r"\]\((?!https?:)([^)\s]+)", text) if is_dead(page, link)]
    folders = "pyruntime|providers|web|tests|e2e|bench|kit|fuzz|scripts|demo|examples|docs"
    named = re.findall(rf"`((?:{folders})/[\w/.-]+\.\w+)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]


def test_references_to_design_pages_exist() -> None:
    """Those in comments and docstrings, with their anchors."""
    listed = subprocess.run(["git", "ls-files", "*.py", "*.js", "*.mjs", "CHANGELOG.md"], cwd=ROOT, capture_output=True)
    files = [ROOT / name for name in listed.stdout.decode().split()]
    named = [(f, ref) for f in files if f.is_file() for ref in re.findall(r"\bdesign/[\w-]+\.md[#\w-]*", f.read_text())]
    assert named and not [(str(f), ref) for f, ref in named if is_dead(ROOT / "docs/README.md", ref)]
