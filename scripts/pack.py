"""Packs Python code for the browser; runs inside Pyodide, so that the byte code is the one Pyodide runs.

A zip of `.pyc`, stored: the web server or the package compresses it, and Python needs not inflate it at start-up.
"""

import base64
import hashlib
import io
import json
import marshal
import sys
import zipfile
from importlib.util import MAGIC_NUMBER

# Parts of the standard library that neither Pyodide nor the engine imports and that make no sense in a web worker.
DROP = """
_aix_support _android_support _apple_support _ios_support _osx_support _pydecimal _pyio _pyrepl
_sysconfigdata__emscripten_wasm32-emscripten antigravity bdb cProfile cmd code compression.bz2
compression.gzip compression.lzma compression.zlib concurrent.futures.process concurrent.futures.interpreter
concurrent.interpreters ctypes curses dbm difflib doctest email encodings ensurepip filecmp fileinput ftplib
getopt getpass gettext html http idlelib imaplib imghdr lib2to3 logging.config logging.handlers mailbox
mimetypes modulefinder multiprocessing netrc nturl2path optparse pdb pickletools plistlib poplib profile
pstats pty py_compile pyclbr pydoc pydoc_data rlcompleter runpy sched shelve site-packages smtplib
socketserver sqlite3 symtable tabnanny tarfile test this timeit tkinter tomllib trace tty turtle turtledemo
unittest urllib.robotparser venv wave webbrowser wsgiref xml xmlrpc zipapp
""".split()
ENCODINGS = """
__init__ aliases utf_8 ascii latin_1 cp437 utf_16 utf_16_le utf_32 raw_unicode_escape unicode_escape
""".split()


def wanted(module: str) -> bool:
    """Whether the standard library keeps `module` (dotted)."""
    if module.startswith("encodings."):
        return module.rpartition(".")[2] in ENCODINGS
    if module == "encodings":
        return True
    parts = module.split(".")
    return not any(".".join(parts[: i + 1]) in DROP for i in range(len(parts)))


def code_of(source: bytes, name: str, optimize: int) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True, optimize=optimize)
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def write(files: dict[str, bytes], keep_docs=lambda module: False, optimize: int = 2) -> bytes:
    """files: path in the zip to source. Everything but `.py` goes in as it is."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path, data in sorted(files.items()):
            if path.endswith(".py"):
                module = path[:-3].replace("/", ".").removesuffix(".__init__")
                data = code_of(data, path, 0 if keep_docs(module) else optimize)
                path += "c"
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


def stdlib(path: str) -> bytes:
    """Pyodide's standard library: trimmed, without doc strings except Pyodide's own, which it reads."""
    files = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            module = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
            if name.endswith(".py") and wanted(module):
                files[name] = archive.read(name)
    return write(files, keep_docs=lambda module: module.startswith(("_pyodide", "pyodide")))


def engine(sources) -> bytes:
    """The engine, asserts and doc strings kept: it must act as it does natively."""
    return write({name: data.to_bytes() for name, data in sources.object_entries()}, optimize=0)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def wheel(sources, metadata: str) -> bytes:
    """A pure wheel of the same sources, for any other Pyodide. Spec: PyPA binary distribution format 1.0."""
    files = {name: data.to_bytes() for name, data in sources.object_entries()}
    version = next(line.split()[1] for line in metadata.splitlines() if line.startswith("Version:"))
    info = f"pyruntime-{version}.dist-info"
    tag = "Wheel-Version: 1.0\nGenerator: pyruntime\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files |= {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": tag.encode()}
    files[f"{info}/top_level.txt"] = b"pyruntime\n"
    lines = [
        f"{name},sha256={base64.urlsafe_b64encode(sha256(data)).rstrip(b'=').decode()},{len(data)}"
        for name, data in sorted(files.items())
    ]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def lock(stock: str, file_name: str, version: str, data: bytes) -> str:
    """pyodide-lock.json that knows this one package."""
    package = {
        "name": "pyruntime",
        "version": version,
        "file_name": file_name,
        "install_dir": "site",
        "sha256": sha256(data).hex(),
        "package_type": "package",
        "imports": ["pyruntime"],
        "depends": [],
        "unvendored_tests": False,
        "tool": {},
    }
    return json.dumps({"info": json.loads(stock)["info"], "packages": {"pyruntime": package}}, indent=1)


assert sys.platform == "emscripten", "run by scripts/build_web.mjs"
