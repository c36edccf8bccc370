"""The argument parser of a command, with examples in its help and errors of one sentence."""

from __future__ import annotations

import argparse
from typing import NoReturn

from pyruntime.errors import InvalidInput


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
