"""Packs Python code for the browser. Runs inside Pyodide, so that the byte code fits its version of Python.

The zips of `.pyc` files are stored, not deflated: HTTP compresses them, and Python need not inflate them at start-up.
"""

import ast
import io
import marshal
import sys
import zipfile
from importlib.util import MAGIC_NUMBER

# Parts of the standard library that make no sense in a web worker.
DROP = """
__phello__ _android_support _apple_support _ios_support _pyrepl antigravity ensurepip idlelib lib2to3 pydoc_data
site-packages test this tkinter turtle turtledemo venv
""".split()
# Code of Pyodide's own package at its start, which the short asyncio runs when one of its names is first used.
EVENT_LOOP = b"""from .webloop import _initialize_event_loop

_initialize_event_loop()
del _initialize_event_loop
"""
# Its replacement: Pyodide makes a snapshot of memory only if JavaScript's objects have the numbers that these get.
NUMBERED = b"from pyodide_js._api import scheduleCallback\n"


def code_of(source: bytes, name: str, docs: bool, asserts: bool) -> bytes:
    tree = ast.parse(source, name)
    if not docs:
        without_docs(tree)
        without_annotations(tree)
    code = compile(tree, name, "exec", dont_inherit=True, optimize=0 if asserts else 1)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def without_docs(tree: ast.AST) -> None:
    """Removes docstrings."""
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]


def without_annotations(tree: ast.AST) -> None:
    """Removes annotations of functions, except for keyword-only arguments, from which operators read types of
    attributes, and except for those that decorators read."""
    for node in ast.walk(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and not any(map(_reads_annotations, node.decorator_list)):
            node.returns = None
            for arg in [*node.args.posonlyargs, *node.args.args, node.args.vararg, node.args.kwarg]:
                if arg:
                    arg.annotation = None


def _reads_annotations(decorator: ast.expr) -> bool:
    """Whether it is `register` of a `functools.singledispatch`, or `helper(…)` of the WebAssembly assembler."""
    if isinstance(decorator, ast.Call):
        return isinstance(decorator.func, ast.Name) and decorator.func.id == "helper"
    return isinstance(decorator, ast.Attribute) and decorator.attr == "register"


def write(files: dict[str, bytes], keep_docs=lambda module: False, asserts: bool = False) -> bytes:
    """files: path in the zip to source. Files other than `.py` are stored unchanged."""
    packed = {}
    for path, data in files.items():
        if path.endswith(".py"):
            docs = keep_docs(module_of(path))
            data = code_of(data, path, docs, asserts or docs)
            path += "c"
        packed[path] = data
    return zipped(packed)


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


def module_of(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def prepared(path: str, short) -> bytes:
    """Return Pyodide's standard library as sources, in which the modules `short` replace whole ones."""
    files = whole(path)
    for file, data in short.object_entries():
        files.pop(file.removesuffix(".py") + "/__init__.py", None)
        files[file] = data.to_bytes()
    return zipped(files)


def whole(path: str) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
    files = {file: data for file, data in files.items() if is_kept(module_of(file))}
    if EVENT_LOOP not in files["pyodide/__init__.py"]:
        raise ValueError("changes how Pyodide starts its event loop")
    files["pyodide/__init__.py"] = files["pyodide/__init__.py"].replace(EVENT_LOOP, NUMBERED)
    return files


def is_kept(module: str) -> bool:
    return module.partition(".")[0] not in DROP and ".test" not in module


def stdlib(path: str, used, short) -> tuple[bytes, bytes]:
    """Return two archives of Pyodide's standard library: used modules, and the rest. Pyodide reads its own
    docstrings."""
    sources = {file: data.to_bytes() for file, data in short.object_entries()}
    main, rest = {}, {}
    for file, data in whole(path).items():
        late = module_of(file) in map(module_of, sources) or module_of(file) not in used
        (rest if late else main)[file] = data
    main |= sources | {"_rest_names.py": f"NAMES = frozenset({sorted(map(module_of, rest))!r})".encode()}

    def keep_docs(module: str) -> bool:
        return module.startswith(("_pyodide", "pyodide"))

    return write(main, keep_docs), write(rest, keep_docs)


def engine(sources) -> bytes:
    """Return the engine with its asserts, so that it behaves as it does natively."""
    return write({name: data.to_bytes() for name, data in sources.object_entries()}, asserts=True)


assert sys.platform == "emscripten", "run by scripts/build_web.mjs"
