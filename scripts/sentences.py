"""python -m scripts.sentences [--count 60] [--seed N]: draws sentences at random, for a newcomer to judge.

A fifth each from docstrings, Python comments, JavaScript comments, documentation, and messages of errors. A sentence is
clear if the reader understands it alone, on first reading.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from kit.house import files, text_of, tree

FEWEST_WORDS = 5
CODE = {"pyruntime", "providers", "web", "kit", "fuzz", "bench", "scripts", "demo", "tests", "e2e"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.sentences", description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    args = parser.parse_args()
    seed = random.randrange(10**6) if args.seed is None else args.seed
    print(f"seed {seed}")
    chosen = random.Random(seed)
    kinds = (docstrings(), comments(), javascript_comments(), documentation(), messages())
    for n, found in enumerate(kinds):
        share = args.count // len(kinds) + (n < args.count % len(kinds))
        for where, sentence in chosen.sample(sorted(set(found)), share):
            print(f"{where}: {sentence}")


Found = Iterator[tuple[str, str]]  # place, sentence


def sentences(where: str, text: str) -> Found:
    for sentence in re.split(r"(?<=[.:?!])\s+(?=[A-Z`\"])", " ".join(text.split())):
        if len(re.findall(r"[A-Za-z]{2,}", sentence)) >= FEWEST_WORDS:
            yield where, sentence


def sources(*suffixes: str) -> Iterator[Path]:
    return (path for path in files() if path.suffix in suffixes and path.parts[0] in CODE)


def docstrings() -> Found:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in sources(".py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                for paragraph in text.split("\n\n"):
                    yield from sentences(f"{path}:{getattr(node, 'lineno', 1)}", paragraph)


def comments() -> Found:
    for path in sources(".py"):
        block: list[str] = []  # comments on lines of their own, one below the other
        last = 0
        for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
            if token.type != tokenize.COMMENT or re.match(r"#\s*(noqa|type:|fmt:|──)", token.string):
                continue
            alone = token.line.lstrip().startswith("#")
            if not alone or token.start[0] != last + 1:
                yield from sentences(f"{path}:{last}", " ".join(block))
                block = []
            if alone:
                block.append(token.string.lstrip("#: "))
                last = token.start[0]
            else:
                yield from sentences(f"{path}:{token.start[0]}", token.string.lstrip("#: "))
        yield from sentences(f"{path}:{last}", " ".join(block))


def javascript_comments() -> Found:
    for path in sources(".js", ".mjs", ".ts"):
        for found in re.finditer(
            r"/\*\*(.*?)\*/|((?:^[ \t]*//[^\n]*\n)+)|(?<=[;,{] )//([^\n]*)", text_of(path), re.S | re.M
        ):
            text = re.sub(r"^\s*(\*|//)", "", next(filter(None, found.groups()), ""), flags=re.M)
            line = text_of(path).count("\n", 0, found.start()) + 1
            yield from sentences(f"{path}:{line}", re.sub(r"@\w+ \{.*?\}+( \[?\w+\]?)?", "", text))


def documentation() -> Found:
    for path in files():
        if path.suffix == ".md" and path.name not in ("operator-coverage.md", "compatibility.md"):
            text = re.sub(r"```.*?```", "", text_of(path), flags=re.S)
            for paragraph in re.split(r"\n\s*\n|\n(?=[-|#] ?)", text):
                yield from sentences(str(path), paragraph.strip("|#- "))


def messages() -> Found:
    """Texts that exceptions are raised with; values stand in braces."""
    for path in sources(".py"):
        if path.parts[0] not in ("pyruntime", "providers"):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                for argument in (*node.exc.args, *(keyword.value for keyword in node.exc.keywords)):
                    if isinstance(argument, ast.Constant | ast.JoinedStr):
                        yield from sentences(f"{path}:{node.lineno}", ast.unparse(argument).strip("f'\""))


if __name__ == "__main__":
    main()
