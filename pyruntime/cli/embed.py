"""`pyruntime embed FOLDER`: compiles a C library and its header, for programs in other languages."""

from __future__ import annotations

from pathlib import Path

from pyruntime.c_library.build import HEADER, build
from pyruntime.cli.parser import Parser

EXAMPLES = {"build/pyruntime": "libpyruntime and pyruntime.h, which has the documentation"}


def main(argv: list[str]) -> int:
    parser = Parser("embed", "Compile a C library and its header, for programs in other languages.", EXAMPLES)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the library and the header are written")
    folder = parser.parse_args(argv).folder
    print(f"{build(folder)}\n{folder / HEADER.name}")
    return 0
