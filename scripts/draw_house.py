"""Draws the architecture as it is: the tree of folders in docs/architecture.md, docs/architecture.svg, and the files
that are written in both languages (docs/design/runtime.md), and the table of features (docs/use/combinations.md).

python -m scripts.draw_house
"""

from __future__ import annotations

import ast
import textwrap
from collections import defaultdict
from pathlib import Path

from kit import feature_table, twins
from kit.house import ROOT, files, imports, modules, room_of, text_of, tree, web_imports, web_room
from scripts.architecture_picture import Panel, picture

PAGE = Path("docs/architecture.md")
PICTURE = Path("docs/architecture.svg")
TWINS = Path("docs/design/runtime.md")
COMBINATIONS = Path("docs/use/combinations.md")
WIDTH = 118

# Rooms in the order in which a model passes through them, each with its stage. Rooms of the engine have their
# description in their docstring.
ENGINE = {
    "compiler": "", "onnx": "read", "ir": "", "frontend": "trace", "ops": "trace", "passes": "optimise",
    "placement": "place", "codegen": "lower", "mathlib": "lower", "emit": "emit", "program": "", "runtime": "run",
    "host": "run", "session": "", "training": "", "native": "run", "api": "", "onnxruntime": "", "pyodide": "",
    "cli": "",
}  # fmt: skip
MODULES = ("browser", "exports", "options", "errors", "ort_errors")  # beside the rooms
PROVIDERS = {"wasm": "print, run", "webgpu": "print, run"}
WEB = {
    "page": ("", "The JavaScript API: sessions, feeds, tensors. Short Programs run in the page."),
    "worker": ("compile", "The engine's worker: Python, downloads of models, cached Programs."),
    "extras": ("", "What few pages need: a batcher, measures for the browser's developer tools."),
    "offline": ("", "Visits without a network: stored files, and the service worker that serves them."),
    "storage": ("", "Browser storage: sealed cache entries, models, quota."),
    "session": ("run", "The session core, in the worker or in the page: a model's Programs and their executors."),
    "run": ("run", "The executor of Programs: steps, plans, memory."),
    "gpu": ("run", "The executor's GPU: device, memory, transfers."),
    "threads": ("run", "Worker threads that share a step."),
    "node": ("", "What Node.js, Deno and Bun need in place of browser APIs."),
    "common": ("", "Code for page and worker: messages, errors, element types, the Program's types."),
}
LEFT_OUT = {"errors", "pyruntime", "providers"}  # of the picture: nearly all folders import them, or they import all
BESIDE = {
    "kit": "shared by tests, e2e, bench and demo: Chromium, models, the official suite",
    "tests": "native tests (pytest), and tests of web/ in Node.js (tests/web)",
    "e2e": "browser tests (pytest with Playwright)",
    "fuzz": "the fuzzer: generators of cases, and judges",
    "bench": "benchmarks beside other runtimes, as ratios",
    "demo": "the demo site",
    "scripts": "set-up, build, generators of files and docs",
}


def drawn() -> dict[Path, str]:
    """Return the files that this script writes, with their texts."""
    return {
        PAGE: _between(PAGE, "tree", f"```\n{_tree()}\n```"),
        TWINS: _between(TWINS, "twins", twins.table()),
        COMBINATIONS: _between(COMBINATIONS, "combinations", feature_table.table()),
        PICTURE: picture(_panels()),
    }


def _between(page: Path, name: str, text: str) -> str:
    """Return the page with this text between the marks of this name."""
    begin, end = f"<!-- {name}: scripts/draw_house.py -->\n", f"<!-- end of the {name} -->"
    before, rest = text_of(page).split(begin)
    return f"{before}{begin}{text}\n{end}{rest.split(end, 1)[1]}"


def _tree() -> str:
    lines = ["pyruntime/                     the engine; in the browser it needs the standard library alone"]
    for room, stage in ENGINE.items():
        lines += _room(room, stage, _docstring(Path("pyruntime", room)), Path("pyruntime", room), ".py")
    lines += [line for name in MODULES for line in _module(name)]
    lines += ["providers/                     code for one target each; installed as pyruntime.providers"]
    for room, stage in PROVIDERS.items():
        lines += _room(room, stage, _docstring(Path("providers", room)), Path("providers", room), ".py")
    lines += ["web/                           the same in JavaScript: the API, the worker, the executor"]
    for room, (stage, what) in WEB.items():
        lines += _room(room, stage, what, Path("web", room), ".js")
    lines += [f"{name + '/':<31}{what}" for name, what in BESIDE.items()]
    return "\n".join(lines)


def _room(room: str, stage: str, what: str, folder: Path, suffix: str) -> list[str]:
    """Return the description of a room, its own modules, and a line for each of its sub-folders."""
    indent = " " * 31
    head = f"  {room + '/':<15}{stage:<14}{what}"
    inner = sorted({p.parts[2] for p in files() if p.parts[:2] == folder.parts and len(p.parts) > 3})
    groups = [_names(folder, suffix), *[[f"{name}/: {', '.join(_names(folder / name, suffix))}"] for name in inner]]
    lines = textwrap.wrap(head, WIDTH, subsequent_indent=indent)
    for names in filter(None, groups):
        lines += textwrap.wrap(", ".join(names), WIDTH, initial_indent=indent, subsequent_indent=indent)
    return lines


def _module(name: str) -> list[str]:
    """A line for a module of pyruntime/, with the first sentence of its docstring."""
    text = " ".join((ast.get_docstring(tree(Path("pyruntime", f"{name}.py"))) or "").split())
    return textwrap.wrap(f"  {name + '.py':<29}{text.split('. ')[0].rstrip('.')}.", WIDTH, subsequent_indent=" " * 31)


def _docstring(folder: Path) -> str:
    text = ast.get_docstring(tree(folder / "__init__.py")) or ""
    return " ".join(text.split("\n\n")[0].split())


def _names(folder: Path, suffix: str) -> list[str]:
    own = [p.stem for p in files() if p.parent == folder and p.suffix == suffix]
    return [name for name in own if not name.startswith("__")]


def _panels() -> list[Panel]:
    """Return the imports between the folders of the engine, and those between the folders of web/."""
    engine: dict[str, set[str]] = defaultdict(set)
    for name in modules():
        room = room_of(name)
        if name.startswith("pyruntime.") and room not in LEFT_OUT:
            engine[room] |= {room_of(i.module) for i in imports(name) if i.module.startswith("pyruntime.")} - LEFT_OUT
    web: dict[str, set[str]] = defaultdict(set)
    for path, (loaded, _) in web_imports().items():
        if len(path.parts) > 2:
            web[web_room(path)] |= {web_room(other) for other in loaded if len(other.parts) > 2}
    stages = ENGINE | {f"providers.{name}": stage for name, stage in PROVIDERS.items()}
    return [
        Panel("The engine, in Python: pyruntime/ and providers/", _reduced(engine), stages, "#4c78a8"),
        Panel(
            "The page, the worker and the executor, in JavaScript: web/",
            _reduced(web),
            {name: stage for name, (stage, _) in WEB.items()} | {"runtime": "run"},
            "#b86e14",
        ),
    ]


def _reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows that no path through other folders implies."""

    def reach(a: str) -> set[str]:
        return {b for direct in graph[a] - {a} for b in (direct, *reach(direct))}

    graph = defaultdict(set, {a: those - {a} for a, those in graph.items()})
    return {a: {b for b in graph[a] if not any(b in reach(c) for c in graph[a] - {b})} for a in sorted(graph)}


if __name__ == "__main__":
    for file, text in drawn().items():
        (ROOT / file).write_text(text)
