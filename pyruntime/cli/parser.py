"""The argument parser of a command, with examples in its help and errors of one sentence."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import NoReturn, TypeVar

from pyruntime.errors import InvalidInput
from pyruntime.options import MOST_THREADS

Number = TypeVar("Number", int, float)


class Parser(argparse.ArgumentParser):
    """The parser of the command `name`. examples: arguments and their effects, for `--help`"""

    def __init__(self, name: str, description: str, examples: dict[str, str]) -> None:
        lines = [f"  pyruntime {name} {text}  # {does}" for text, does in examples.items()]
        super().__init__(
            prog=f"pyruntime {name}",
            description=description,
            epilog="\n".join(["examples:", *lines]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        raise InvalidInput(message, hint=f"{self.prog} --help")


def between(kind: Callable[[str], Number], least: float, most: float = inf) -> Callable[[str], Number]:
    """The `type` of an argument: an int or a float from `least` to `most`."""

    def number(text: str) -> Number:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least:g}{f' to {most:g}' if most < inf else ' on'}")
        return value

    return number


threads = between(int, 0, MOST_THREADS)


def check_out(out: Path, source: Path) -> None:
    """Errors: InvalidInput if a command would overwrite the file that it reads."""
    if out.resolve() == source.resolve():
        raise InvalidInput(f"{out} is the file that is read", hint="name another file")
