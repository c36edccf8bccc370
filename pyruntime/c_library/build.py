"""Compiles the C library for the Python interpreter that runs this."""

from __future__ import annotations

import os
import shutil
import site
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory

from pyruntime.errors import InvalidInput, SessionFailed

HEADER = Path(__file__).with_name("pyruntime.h")
_MODULE = "_pyruntime_c"
_START = """
import site
for folder in {folders!r}:
    site.addsitedir(folder)
from {module} import ffi
from pyruntime.c_library.functions import define
define(ffi)
"""


def build(folder: Path) -> Path:
    """Writes the library and pyruntime.h into a folder, and returns the library's path. Errors: InvalidInput without
    cffi, a compiler or Python's headers; SessionFailed if the compiler fails"""
    try:
        import cffi
    except ImportError:
        hint = "pip install 'pyruntime-onnx[embed]'"
        raise InvalidInput("the package cffi is not installed", hint=hint) from None
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise InvalidInput("the headers of Python are not installed", hint="on Debian: apt install python3-dev gcc")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HEADER, folder)
    ffi = cffi.FFI()
    ffi.embedding_api(declarations(HEADER.read_text()))
    include = str(HEADER.parent)
    ffi.set_source(_MODULE, f'#include "{HEADER.name}"', include_dirs=[include], extra_link_args=_linked())
    ffi.embedding_init_code(_START.format(folders=_folders(), module=_MODULE))
    with TemporaryDirectory() as work:
        try:
            made = Path(ffi.compile(tmpdir=work, target="libpyruntime.*"))
        except Exception as error:  # of setuptools, or of distutils in Python 3.11
            hint = "is a C compiler installed? On Debian: apt install gcc python3-dev"
            raise SessionFailed(f"the library was not compiled: {error}", hint=hint) from error
        return Path(shutil.copy(made, folder))


def declarations(header: str) -> str:
    """What cffi reads of the header: no directives, and nothing for C++."""
    lines, inside = [], True
    for line in header.splitlines():
        if line.startswith("#ifdef __cplusplus"):
            inside = False
        elif line.startswith("#endif"):
            inside = True
        elif inside and not line.startswith("#"):
            lines.append(line.replace("CFFI_DLLEXPORT ", ""))
    return "\n".join(lines)


def _folders() -> list[str]:
    """Where the embedded interpreter finds this package and those that it needs."""
    return [*site.getsitepackages(), str(Path(__file__).parents[2])]


def _linked() -> list[str]:
    """The library finds libpython where it is, also outside of the system's folders."""
    libraries = sysconfig.get_config_var("LIBDIR")
    return [f"-Wl,-rpath,{libraries}"] if libraries and os.name == "posix" else []
