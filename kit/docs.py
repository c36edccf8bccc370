"""Code blocks of the documentation, for the tests that run them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FILES = ["README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]


class Block(NamedTuple):
    file: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def blocks(language: str) -> list[Block]:
    """The fenced code blocks in a language, of all files."""
    found = []
    for file in FILES:
        text = (ROOT / file).read_text()
        for m in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if m[1] == language:
                found.append(Block(file, text[: m.start()].count("\n") + 2, m[1], m[2]))
    return found
