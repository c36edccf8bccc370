"""python -m scripts.house_figures [COMMIT …]: files, lines, words and imports of each package, of commits side by side.

Without commits: the last release (the newest tag), if there is one, and the working tree. It counts Python, JavaScript,
WGSL and shell scripts, and in one row the documentation. The arrows of a package are the packages that it imports, or
names in JSDoc types. The product is pyruntime, providers and web. Circles are modules that import each other, for types
or for values. With two columns the last one is the change in lines.
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
    pages = [house.text_of(path) for path in house.files() if path.suffix == ".md"]
    words = sum(len(text.split()) for text in pages)
    found["documentation"] = Counter(files=len(pages), lines=sum(map(str.count, pages, "\n" * len(pages))), words=words)
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
        subprocess.run(["git", "init", "--quiet", folder], check=True)  # `house` asks git which files there are
        here = house.ROOT
        look_at(Path(folder))
        try:
            return figures()
        finally:
            look_at(here)


def look_at(root: Path) -> None:
    """Make `house` read another tree."""
    house.ROOT = root
    for function in vars(house).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.house_figures", description=__doc__)
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="default: the last release and the working tree")
    commits = parser.parse_args().commits or [*last_release(), ""]
    tables = [of_commit(commit) if commit else figures() for commit in commits]
    rooms = sorted({name for table in tables for name in table})
    print(f"{'':26}" + "".join(f"{commit[:34] or 'working tree':>38}" for commit in commits))
    print(f"{'':26}" + "".join(f"{'':6}" + "".join(f"{head:>8}" for head in COLUMNS) for _ in tables))
    for name in rooms:
        counts = [table.get(name, Counter()) for table in tables]
        cells = ["".join(f"{count[column]:8}" for column in COLUMNS) for count in counts]
        change = f"{counts[1]['lines'] - counts[0]['lines']:+8}" if len(counts) == 2 else ""
        print(f"{name:26}" + "".join(f"{'':6}{cell}" for cell in cells) + change)


def last_release() -> list[str]:
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*"]
    return subprocess.run(command, cwd=house.ROOT, capture_output=True, text=True, check=False).stdout.split()


if __name__ == "__main__":
    main()
