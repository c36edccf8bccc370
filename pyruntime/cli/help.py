"""`pyruntime help ERROR`: causes and remedies of a kind of error, as the documentation has them."""

from __future__ import annotations

from pathlib import Path

import pyruntime
from pyruntime.cli.parser import Parser
from pyruntime.errors import InvalidInput

EXAMPLES = {"": "all commands", "InvalidModel": "why a file is no model that can run"}


def main(argv: list[str]) -> int:
    parser = Parser("help", "Print causes and remedies of a kind of error.", EXAMPLES)
    parser.add_argument("error", metavar="ERROR", help="the name of the class, as messages show it")
    name = parser.parse_args(argv).error
    pages = {path.stem: path for path in _folder().glob("*.md") if path.stem != "README"}
    if name not in pages:
        raise InvalidInput(f'there is no kind of error "{name}"', hint=f"there are {', '.join(sorted(pages))}")
    print(pages[name].read_text(encoding="utf-8"), end="")
    return 0


def _folder() -> Path:
    """In the package, or beside it in a checkout."""
    package = Path(pyruntime.__file__).parent
    found = package / "docs/errors"
    return found if found.is_dir() else package.parent / "docs/errors"
