"""python -m scripts.house_figures [COMMIT …]: files, lines, words and import arrows of each room, of the working tree
or of commits side by side. It counts code only: Python, JavaScript, WGSL and shell scripts.

The arrows of a room are the rooms that it imports, or names in JSDoc types. The product is pyruntime, providers and
web. Circles are modules that import each other, for types or for values.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from kit import house

CODE = {".py", ".js", ".mjs", ".ts", ".wgsl", ".sh"}
DEEP = {"pyruntime", "providers", "web"}  # their rooms are their sub-folders
COLUMNS = ("files", "lines", "words", "arrows")


def room(path: Path) -> str:
    depth = 2 if path.parts[0] in DEEP and len(path.parts) > 2 else 1
    return "/".join(path.parts[:depth]) if len(path.parts) > 1 else "."


def figures() -> dict[str, Counter[str]]:
    """By room, and by folder at the top, of the tree at `house.ROOT`."""
    found: dict[str, Counter[str]] = {}
    modules = house.everything()
    pairs = {(modules[a], modules[i.module]) for a in modules for i in house.imports(a) if i.module in modules}
    pairs |= {(path, other) for path, (loaded, named) in house.web_imports().items() for other in loaded | named}
    arrows = {(room(a), room(b)) for a, b in pairs if room(a) != room(b)}
    for path in filter(lambda path: path.suffix in CODE, house.files()):
        text = house.text_of(path)
        counts = Counter(files=1, lines=text.count("\n"), words=len(text.split()))
        top = path.parts[0] if len(path.parts) > 1 else "."
        for name in {room(path), top, *(["product"] if top in DEEP else [])}:
            found[name] = found.get(name, Counter()) + counts
    for a, _ in arrows:
        for name in {a, a.partition("/")[0]}:
            found.setdefault(name, Counter())["arrows"] += 1
    graph: dict[Path, set[Path]] = {}
    for a, b in pairs:
        graph.setdefault(a, set()).add(b)
    return {**found, "all modules": Counter(arrows=len(pairs)), "in circles": Counter(files=len(house.circles(graph)))}


def of_commit(commit: str) -> dict[str, Counter[str]]:
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=house.ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        before, house.ROOT = house.ROOT, Path(folder)
        for function in (house.files, house.text_of, house.tree, house.modules, house.everything, house.imports):
            function.cache_clear()
        house.web_imports.cache_clear()
        try:
            return figures()
        finally:
            house.ROOT = before


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.house_figures", description=__doc__)
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="default: the working tree")
    commits = parser.parse_args().commits
    tables = [of_commit(commit) for commit in commits] or [figures()]
    rooms = sorted({name for table in tables for name in table})
    print(f"{'':26}" + "".join(f"{commit[:34]:>38}" for commit in commits))
    print(f"{'':26}" + "".join(f"{'':6}" + "".join(f"{head:>8}" for head in COLUMNS) for _ in tables))
    for name in rooms:
        cells = ["".join(f"{table.get(name, Counter())[column]:8}" for column in COLUMNS) for table in tables]
        print(f"{name:26}" + "".join(f"{'':6}{cell}" for cell in cells))


if __name__ == "__main__":
    main()
