"""`python -m pyruntime.onnxruntime PROGRAM.py ARGUMENT…` or `… -m MODULE ARGUMENT…`: runs a program on this engine."""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    if sys.argv[1:2] == ["-m"] and len(sys.argv) > 2:
        sys.argv[:] = sys.argv[2:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif len(sys.argv) > 1:
        sys.argv[:] = sys.argv[1:]
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        sys.exit("python -m pyruntime.onnxruntime PROGRAM.py ARGUMENT… | -m MODULE ARGUMENT…")


if __name__ == "__main__":
    main()
