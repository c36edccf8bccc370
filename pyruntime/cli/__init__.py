"""The command line: `pyruntime COMMAND MODEL …`. Each command is a file of its own with a `main(argv)`.

A command prints to standard output; what it refuses goes to standard error as one sentence, with exit status 2.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

COMMANDS = {
    "run": "run a model and print its outputs",
    "inspect": "inputs, outputs, operators, kernels, weights, and what is not supported",
    "bench": "time to compile, first and median run",
    "profile": "time of each kernel, as a table and a Chrome trace",
    "tune": "measure other schedules of a model's kernels on this machine",
    "memory": "the memory plan, as numbers and a picture",
    "export": "compile a model into a file that runs without compiling",
    "serve": "a static server for pages that use pyruntime",
}
WITHOUT_EXTRAS = ("serve",)


def usage() -> str:
    lines = [f"  {name:<9} {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        ["usage: pyruntime COMMAND …", "", *lines, "", "`pyruntime COMMAND --help` lists the options of a command."]
    )


def main(argv: list[str] | None = None) -> int:
    """Entry point of the `pyruntime` command. Gives the exit status: 0, 1 for stopped, 2 for refused."""
    from pyruntime import __version__
    from pyruntime.errors import PyRuntimeError

    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(__version__)
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        print(f'pyruntime: there is no command "{name}" (one of {", ".join(COMMANDS)})', file=sys.stderr)
        return 2
    try:
        if name not in WITHOUT_EXTRAS:
            import pyruntime.native  # noqa: F401  says what is missing
        status = int(import_module(f"pyruntime.cli.{name}").main(rest) or 0)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # of `pyruntime … | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (PyRuntimeError, OSError, ModuleNotFoundError) as error:
        print(f"pyruntime: {_sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 1


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return str(error)
