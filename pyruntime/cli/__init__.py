"""`pyruntime COMMAND …`: each command is a module of this package with a `main(argv)`."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = ("serve",)


def main(argv: list[str] | None = None) -> int:
    command, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if command not in COMMANDS:
        print(f"usage: pyruntime {{{','.join(COMMANDS)}}} …", file=sys.stderr)
        return 2
    return import_module(f"pyruntime.cli.{command}").main(rest)
