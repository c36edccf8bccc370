"""Draws sentences at random from the project's prose, to be read by a person who does not know the project.

    python -m scripts.sample_sentences [--count 50] [--seed 1] [--root FOLDER]

Prose is what Python and JavaScript comments, docstrings, messages (text literals of six words or more) and Markdown
pages say. Prints one sentence a line, with its file and line. The same seed on the same tree draws the same sentences.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

FEWEST_WORDS = 6
PRODUCT = ("pyruntime/", "providers/", "web/", "docs/", "demo/", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
GENERATED = ("docs/operator-coverage.md", "docs/compatibility.md", "web/common/program.js")
JS_COMMENT = re.compile(r"/\*\*?(.*?)\*/|(?:^|[ \t])//(.*?)$", re.DOTALL | re.MULTILINE)
JS_TYPE = re.compile(r"@typedef .*|@(type|template|returns) \{.*?\}(?!\})|@\w+ (\{.*?\}(?!\}))?")
JS_TEXT = re.compile(r"'([^'\n]{30,})'|`([^`\n]{30,})`")

Piece = tuple[int, str]  # line, text


def python_pieces(text: str) -> Iterator[Piece]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(v.value if isinstance(v, ast.Constant) else "…" for v in node.values)


def javascript_pieces(text: str) -> Iterator[Piece]:
    for pattern in (JS_COMMENT, JS_TEXT):
        for found in pattern.finditer(text):
            words = re.sub(r"^\s*\*", "", found[1] or found[2] or "", flags=re.MULTILINE)
            yield text.count("\n", 0, found.start()) + 1, JS_TYPE.sub("", words)


def markdown_pieces(text: str) -> Iterator[Piece]:
    line = 1
    for paragraph in re.sub(r"```.*?```", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL).split("\n\n"):
        if not paragraph.lstrip().startswith(("|", "<", "#")):
            yield line, paragraph
        line += paragraph.count("\n") + 2


READERS = {".py": python_pieces, ".js": javascript_pieces, ".mjs": javascript_pieces, ".md": markdown_pieces}


def sentences(root: Path) -> list[str]:
    """Every sentence of the product and its pages, as "file:line: sentence"."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    found = []
    for name in sorted(listed.split("\n")):
        reader = READERS.get(Path(name).suffix)
        path = root / name
        if reader is None or name in GENERATED or not name.startswith(PRODUCT) or path.is_symlink():
            continue
        for line, piece in reader(path.read_text()):
            for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`])", " ".join(piece.split())):
                if len(re.findall(r"[A-Za-z]{2,}", sentence)) >= FEWEST_WORDS:
                    found.append(f"{name}:{line}: {sentence}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    options = parser.parse_args()
    print(*random.Random(options.seed).sample(sentences(options.root), options.count), sep="\n")


if __name__ == "__main__":
    main()
