"""Packs Python code for the browser; runs inside Pyodide, so that the byte code is the one Pyodide runs.

A zip of `.pyc`, stored: the web server or the package compresses it, and Python needs not inflate it at start-up.
"""

import ast
import importlib
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
# Of those that a program may ask for by name.
ENCODINGS = """
ascii latin_1 cp437 utf_8 utf_16 utf_16_le utf_32 raw_unicode_escape unicode_escape
""".split()
# What comes when it is first imported: the rest of the standard library, in a file of its own.
REST = """
import sys, zipimport

NAMES = frozenset({names!r})
FILE = "/lib/python_rest.zip"

class Rest:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in NAMES:
            return None
        try:
            open(FILE).close()
        except FileNotFoundError:
            from pyruntime_host import rest_of_stdlib
            try:
                data = rest_of_stdlib().to_bytes()
            except Exception as error:
                raise ImportError(f"{{name}} is in a file that cannot be loaded: {{error}}") from error
            with open(FILE, "wb") as file:
                file.write(data)
        folder = name.rpartition(".")[0].replace(".", "/")
        return zipimport.zipimporter(f"{{FILE}}/{{folder}}".rstrip("/")).find_spec(name)

sys.meta_path.append(Rest)
"""


def code_of(source: bytes, name: str, docs: bool, asserts: bool) -> bytes:
    tree = ast.parse(source, name)
    if not docs:
        without_docs(tree)
    code = compile(tree, name, "exec", dont_inherit=True, optimize=0 if asserts else 1)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def without_docs(tree: ast.AST) -> None:
    """Takes the doc strings out."""
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]


def write(files: dict[str, bytes], keep_docs=lambda module: False, asserts: bool = False) -> bytes:
    """files: path in the zip to source. Everything but `.py` goes in as it is."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path, data in sorted(files.items()):
            if path.endswith(".py"):
                docs = keep_docs(module_of(path))
                data = code_of(data, path, docs, asserts or docs)
                path += "c"
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


def module_of(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def used_by(names) -> list[str]:
    """The modules of the standard library that a start of Pyodide and these imports need; asks a fresh interpreter."""
    for name in [*names, *(f"encodings.{name}" for name in ENCODINGS)]:
        if name.partition(".")[0] in sys.stdlib_module_names:
            try:
                importlib.import_module(name)
            except ImportError:
                pass  # not on this platform, or a name inside a module
    return sorted(sys.modules)


def stdlib(path: str, used) -> tuple[bytes, bytes]:
    """Pyodide's standard library: what is used, and the rest. Pyodide reads its own doc strings."""
    main, rest = {}, {}
    with zipfile.ZipFile(path) as archive:
        for file in filter(lambda name: name.endswith(".py"), archive.namelist()):
            module = module_of(file)
            if module.partition(".")[0] not in DROP and ".test" not in module:
                (main if module in used else rest)[file] = archive.read(file)
    names = sorted(map(module_of, rest))
    main["_rest_of_stdlib.py"] = REST.format(names=names).encode()

    def keep_docs(module: str) -> bool:
        return module.startswith(("_pyodide", "pyodide"))

    return write(main, keep_docs), write(rest, keep_docs)


def engine(sources) -> bytes:
    """The engine, asserts kept: it must act as it does natively."""
    return write({name: data.to_bytes() for name, data in sources.object_entries()}, asserts=True)


assert sys.platform == "emscripten", "run by scripts/build_web.mjs"
