"""What `scripts/contract.py` writes from the options in pyruntime/options.py, and from those of training in
pyruntime/training/graph/recipe.py: the page's tables of them, their types in TypeScript, and their documentation."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Any, NamedTuple

from kit.house import ROOT
from pyruntime import options
from pyruntime.options import Kind, Option, SessionOptions, declared, javascript_name
from pyruntime.training.graph.recipe import OPTIONS as TRAINING_OPTIONS

NOTE = "Written by scripts/contract.py from pyruntime/options.py."
END = "End of the generated part."
TABLE = "web/page/options/engine_options.js"
TYPES = "web/index.d.ts"
PAGE = "docs/api/options.md"
WIDTH = 112
TRAINING_NOTE = "Written by scripts/contract.py from pyruntime/training/graph/recipe.py."
TRAINING_TABLE = "web/page/training/training_options.js"
TRAINING_TYPES = "web/training.d.ts"
TRAINING_PAGE = "docs/training.md"

# Of each kind its expression in web/page/options/option_kinds.js, and its type.
KINDS = {
    options.COUNT: ("count()", "number"),
    options.THREADS: (f"count({options.MOST_THREADS})", "number"),
    options.BYTES: (f"positive('{options.BYTES.wants}')", "number"),
    options.SECONDS: (f"positive('{options.SECONDS.wants}')", "number"),
    options.FLAG: ("flag", "boolean"),
    options.NAME: ("text", "string"),
    options.NAMES: ("list", "readonly string[]"),
    options.SIZES: ("sizes", "Readonly<Record<string, number>>"),
    options.CHOICES: ("record", "Tuned['choices']"),
    options.LOCATIONS: ("locations", ""),
}
# onnxruntime-common declares the types of these.
OF_ONNXRUNTIME = {
    "graph_optimization_level", "intra_op_num_threads", "free_dimension_overrides", "preferred_output_location",
}  # fmt: skip


class Row(NamedTuple):
    """name: in Python; text: its paragraphs"""

    name: str
    option: Option
    default: Any
    text: list[str]

    @property
    def in_page(self) -> bool:
        return options.PAGE in self.option.places


def rows() -> Iterator[Row]:
    defaults, texts = SessionOptions(), documentation()
    for name, option in declared(SessionOptions).items():
        yield Row(name, option, getattr(defaults, name), texts[name])


def documentation() -> dict[str, list[str]]:
    """The paragraphs below each field. Errors: KeyError for a field without any, when it is looked up."""
    tree = ast.parse((ROOT / "pyruntime/options.py").read_text())
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SessionOptions"]
    found = {}
    for field, below in zip(body, body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            assert isinstance(below.value, ast.Constant)
            found[field.target.id] = [" ".join(text.split()) for text in str(below.value.value).split("\n\n")]
    return found


def javascript() -> str:
    groups = {"PROGRAM": options.PROGRAM, "LIMITS": options.LIMIT, "SESSION": options.SESSION}
    lines = [f"// Options of the engine, and what presets decide. {NOTE}", ""]
    used = {expression(row.option.kind).partition("(")[0] for row in rows() if row.in_page} | {"refusedIfOn", "text"}
    lines.append(f"import {{ {', '.join(sorted(used))} }} from './option_kinds.js';")
    for name, acts_on in groups.items():
        lines += ["", "/** @type {import('./option_kinds.js').Table} */", f"export const {name} = {{"]
        for row in rows():
            if row.in_page and row.option.acts_on == acts_on:
                lines.append(f"  {javascript_name(row.name)}: {expression(row.option.kind)},")
        lines.append("};")
    timeout = f"{SessionOptions().gpu_timeout:g}"
    lines += ["", "/** The default of gpuTimeout, in seconds. */", f"export const GPU_TIMEOUT = {timeout};"]
    refused = [javascript_name(row.name) for row in rows() if options.PAGE in row.option.refused_for_programs]
    lines += [
        "",
        "/** A compiled Program cannot honour them. */",
        f"export const REFUSED_FOR_PROGRAMS = {quoted(refused)};",
    ]
    entries = {"SESSION_ENTRIES": options.SESSION_ENTRIES, "RUN_ENTRIES": options.RUN_ENTRIES}
    for name, found in entries.items():
        lines += ["", "/** @type {import('./option_kinds.js').Table} */", f"export const {name} = {{"]
        for key, entry in found.items():
            if options.PAGE in entry.places:
                lines.append(f"  '{key}': {f'refusedIfOn({entry.refused!r})' if entry.refused else 'text'},")
        lines.append("};")
    lines += [
        "",
        "/** @type {Record<string, { threads: number, savesPower?: boolean }>} */",
        "export const PRESETS = {",
    ]
    for name, preset in options.PRESETS.items():
        threads = "Infinity" if preset.page_threads == math.inf else preset.page_threads
        saves = ", savesPower: true" if preset.saves_power else ""
        lines.append(f"  {name}: {{ threads: {threads}{saves} }},")
    return "\n".join([*lines, "};", ""])


def expression(kind: Kind) -> str:
    return f"oneOf({quoted(kind.values)[1:-1]})" if kind.values else KINDS[kind][0]


def quoted(names: Any) -> str:
    return str([*names])


def typescript() -> str:
    lines = []
    for row in rows():
        if row.in_page and row.name not in OF_ONNXRUNTIME:
            kind = row.option.kind
            text = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", row.text[0])
            comment = [" ".join(("/**", text, "*/"))]
            if len(comment[0]) > WIDTH:
                comment = ["/**", *(f" * {line}" for line in wrap(text, WIDTH - 3)), " */"]
            values = " | ".join(map(repr, kind.values)) or KINDS[kind][1]
            lines += [*comment, f"{javascript_name(row.name)}?: {values} | undefined;"]
    return between(TYPES, "      // {}\n", "".join(f"      {line}\n" for line in lines))


def document() -> str:
    lines = []
    for row in rows():
        about = [f"In Python `{row.name}`"] if row.in_page else ["In Python only"]
        about += [f"default {default(row)}"] if default(row) else []
        title = javascript_name(row.name) if row.in_page else row.name
        lines += ["", f"### `{title}`", "", f"{'; '.join(about)}.", "", *wrapped(within_page(" ".join(row.text)))]
    refused = [f"`{row.name}`" for row in rows() if options.PYODIDE not in row.option.places]
    lines += ["", *wrapped(f"[In Pyodide](python.md#in-pyodide) sessions take all but {', '.join(refused)}."), ""]
    return between(PAGE, "<!-- {} -->\n", "\n".join(lines) + "\n")


def within_page(text: str) -> str:
    """Links of docstrings lead from docs/; these lead from the page."""
    return text.replace("](", "](../").replace("](../api/options.md#", "](#").replace("](../api/", "](")


def wrapped(text: str) -> list[str]:
    """Lines of Markdown; links stay whole."""
    return wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def default(row: Row) -> str:
    if row.option.kind == options.BYTES:
        return f"{row.default >> 30} GiB" if row.default >> 30 else f"{row.default >> 20} MiB"
    if row.option.kind == options.SECONDS:
        return f"{row.default:g} s"
    is_shown = bool(row.default) or row.default is False
    return f"`{json.dumps(row.default)}`" if is_shown else "0" if row.default == 0 else ""


def between(name: str, comment: str, text: str, note: str = NOTE) -> str:
    """A file with this text between the two marks."""
    begin, end = comment.format(note), comment.format(END)
    before, rest = (ROOT / name).read_text().split(begin)
    return f"{before}{begin}{text}{end}{rest.split(end, 1)[1]}"


def training_names() -> str:
    names = [javascript_name(name) for name in TRAINING_OPTIONS]
    refused = [javascript_name(row.name) for row in rows() if row.option.refused_for_training]
    return (
        f"// The options of a training session. {TRAINING_NOTE}\n\nexport const TRAINING_OPTIONS = {quoted(names)};\n"
        f"/** Options of other sessions, which it cannot honour. */\nexport const REFUSED = {quoted(refused)};\n"
    )


def training_types() -> str:
    lines = []
    for name, option in TRAINING_OPTIONS.items():
        text = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", option.text)
        text = re.sub(r"\w+_\w+", lambda found: javascript_name(found[0]), text[0].upper() + text[1:])
        kind = re.sub(r"\?: ([^;}]+?)(;| })", r"?: \1 | undefined\2", option.type)
        entry = f"loss: {kind}" if name == "loss" else f"{javascript_name(name)}?: {kind} | undefined"
        lines += [f"  /** {text}. */", f"  {entry};"]
    return between(TRAINING_TYPES, "  // {}\n", "\n".join(lines) + "\n", TRAINING_NOTE)


def training_document() -> str:
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for name, option in TRAINING_OPTIONS.items():
        value = "" if option.default is None else json.dumps(option.default) if option.default else str(option.default)
        shown = f"`{value}`" if value.startswith('"') or value in ("True", "False") else value.removesuffix(".0")
        lines.append(f"| `{name}` | {shown}{' ' if shown else ''}| {option.text} |")
    return between(TRAINING_PAGE, "<!-- {} -->\n", "\n" + "\n".join(lines) + "\n\n", TRAINING_NOTE)


COMMITTED = {
    TYPES: typescript, PAGE: document, TRAINING_TYPES: training_types, TRAINING_PAGE: training_document,
}  # fmt: skip
BUILT = {TABLE: javascript, TRAINING_TABLE: training_names}
