"""The command line: `pyruntime COMMAND MODEL …`. Each command is a module with a `main(argv)`.

A command prints its results to standard output, and an error as one sentence to standard error, with exit status 2.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

COMMANDS = {
    "run": "run a model and print its outputs",
    "inspect": "inputs, outputs, operators, kernels and weights of a model, and operators that are not supported",
    "bench": "measure compilation, the first run and the median run",
    "profile": "measure each kernel; prints a table, saves a Chrome trace",
    "tune": "measure other schedules of the kernels on this machine, and choose the fastest",
    "memory": "print and draw the memory plan of a run",
    "export": "compile a model into a file that runs without compiling",
    "quantize": "write a model with weights and activations of 8 bits, by samples",
    "convert": "convert a GGUF file into an ONNX model, a tokenizer and a chat template",
    "adapters": "list what is in a LoRA adapter, and convert it",
    "embed": "compile a C library and its header, for programs in other languages",
    "serve": "serve pages that use pyruntime, or models to other programs",
    "help": "print causes and remedies of a kind of error",
}
WITHOUT_EXTRAS = ("serve", "help")


def usage() -> str:
    lines = [f"  {name:<9} {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        ["usage: pyruntime COMMAND …", "", *lines, "", "`pyruntime COMMAND --help` lists the options of a command."]
    )


def main(argv: list[str] | None = None) -> int:
    """Entry point of the `pyruntime` command. Returns the exit status: 0, 1 if it was stopped, 2 for an error."""
    from pyruntime import __version__
    from pyruntime.errors import PyRuntimeError

    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help") or argv == ["help"]:
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(__version__)
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        print(f'pyruntime: unknown command "{name}" (one of {", ".join(COMMANDS)})', file=sys.stderr)
        return 2
    try:
        if name not in WITHOUT_EXTRAS:
            import pyruntime.native  # noqa: F401  its error names packages that are not installed
        status = int(import_module(f"pyruntime.cli.{name}").main(rest) or 0)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the process that reads the output has ended, as in `pyruntime … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (PyRuntimeError, OSError, ModuleNotFoundError) as error:
        print(f"pyruntime: {_sentence(error)}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 1


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return str(error)
