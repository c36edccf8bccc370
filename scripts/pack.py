"""Packs Python code for the browser; runs inside Pyodide, so that the byte code is the one Pyodide runs.

A zip of `.pyc`, stored: the web server or the package compresses it, and Python needs not inflate it at start-up.
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
# What Pyodide's own package does at its start, and the short asyncio does when something of it is asked for.
EVENT_LOOP = b"""from .webloop import _initialize_event_loop

_initialize_event_loop()
del _initialize_event_loop
"""
# What takes its place: a snapshot of the memory is made only if objects of JavaScript have the numbers that these get.
NUMBERED = b"from pyodide_js._api import scheduleCallback\n"


def code_of(source: bytes, name: str, docs: bool, asserts: bool) -> bytes:
    tree = ast.parse(source, name)
    if not docs:
        without_docs(tree)
        without_annotations(tree)
    code = compile(tree, name, "exec", dont_inherit=True, optimize=0 if asserts else 1)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def without_docs(tree: ast.AST) -> None:
    """Takes the doc strings out."""
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]


def without_annotations(tree: ast.AST) -> None:
    """Takes those of functions out, but for keywords: attributes of operators, whose kinds are read there; and but for
    those by which `functools.singledispatch` chooses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(map(_registers, node.decorator_list)):
            node.returns = None
            for arg in [*node.args.posonlyargs, *node.args.args, node.args.vararg, node.args.kwarg]:
                if arg:
                    arg.annotation = None


def _registers(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr == "register"


def write(files: dict[str, bytes], keep_docs=lambda module: False, asserts: bool = False) -> bytes:
    """files: path in the zip to source. Everything but `.py` goes in as it is."""
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
    """Pyodide's standard library, as sources, with the modules `short` in the place of whole ones."""
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
        raise ValueError("Pyodide starts its event loop in another way")
    files["pyodide/__init__.py"] = files["pyodide/__init__.py"].replace(EVENT_LOOP, NUMBERED)
    return files


def is_kept(module: str) -> bool:
    return module.partition(".")[0] not in DROP and ".test" not in module


def stdlib(path: str, used, short) -> tuple[bytes, bytes]:
    """Pyodide's standard library: what is used, and the rest. Pyodide reads its own doc strings."""
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
    """The engine, asserts kept: it must act as it does natively."""
    return write({name: data.to_bytes() for name, data in sources.object_entries()}, asserts=True)


assert sys.platform == "emscripten", "run by scripts/build_web.mjs"
