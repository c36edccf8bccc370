"""docs/api/ names what there is, and everything that there is: in JavaScript, in Python and on the command line."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
from functools import cache
from typing import Any

import onnxruntime

from kit.docs import ROOT
from pyruntime import InferenceSession, PyRuntimeError, SessionOptions, errors
from pyruntime.cli import COMMANDS
from pyruntime.errors import NeedsValue, UnsupportedSizes
from pyruntime.options import declared

PAGES = {path.stem: path.read_text() for path in (ROOT / "docs/api").glob("*.md")}
PYTHON, COMMAND_LINE = PAGES["python"], PAGES["command-line"]
TEXT = "\n".join(PAGES.values())
JAVASCRIPT = "\n".join(text for name, text in PAGES.items() if name not in ("python", "command-line"))
ERRORS = (ROOT / "docs/errors/README.md").read_text()
DECLARED = "".join(
    (ROOT / "web" / f"{name}.d.ts").read_text() for name in ("index", "pictures", "providers", "quantize", "training")
)
INHERITED = {"endProfiling", "inputMetadata", "inputNames", "outputMetadata", "outputNames", "startProfiling"}
EXPORTED = """
  const ours = await import('./web/index.js');
  const common = await import('onnxruntime-common');
  const members = (type) => [...Object.getOwnPropertyNames(type.prototype), ...Object.getOwnPropertyNames(type)];
  const told = {
    ours: Object.keys(ours).filter((name) => name !== 'default' && ours[name] !== common[name]),
    byDefault: Object.keys(ours.default),
    byName: Object.keys(ours),
    session: members(ours.InferenceSession).concat(members(common.InferenceSession)),
    options: Object.keys(ours.env.wasm),
  };
  console.log(JSON.stringify(told));
"""


@cache
def javascript() -> dict[str, set[str]]:
    command = ["node", "--no-warnings", "--input-type=module", "-e", EXPORTED]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {key: set(names) for key, names in json.loads(out).items()}


def code(text: str) -> list[str]:
    """What stands in headings and in the first cells of tables, as code."""
    lines = text.splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("|")]
    headings = [line for line in lines if line.startswith("##")]
    return [name for cell in (*cells, *headings) for name in re.findall(r"`([^`]+)`", cell)]


def called(text: str, what: str) -> set[str]:
    """Members of `what` that a text names, in tables, sentences or examples; the names of files are in quotes."""
    return set(re.findall(rf"(?<![\w.']){what}\.(\w+)", text))


def public(kind: type[Any]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_javascript_names_exist() -> None:
    there = javascript()
    assert (
        called(JAVASCRIPT, "session") - there["session"]
        == {"inputMetadata", "timings"} & called(JAVASCRIPT, "session") - there["session"]
    )
    offered = there["ours"] | {"Tensor", "env"}
    assert called(JAVASCRIPT, "ort") <= offered
    imported = {n.strip() for line in re.findall(r"import \{([^}]+)\} from 'pyruntime'", TEXT) for n in line.split(",")}
    assert imported <= offered


def test_default_export() -> None:
    """`import ort from 'onnxruntime-web'` is how many programs begin."""
    there = javascript()
    assert there["byDefault"] == there["byName"] > {"InferenceSession", "Tensor", "env", "default"}


def test_every_javascript_name_is_there() -> None:
    """Exports that are not onnxruntime-common's, methods of sessions, fields of reports."""
    there = javascript()
    for name in there["ours"] - {"InferenceSession"}:
        assert re.search(rf"`(?:ort\.)?{name}[`(]", JAVASCRIPT + ERRORS), name
    # `classes` is for the package's own files that are loaded apart, such as extras.mjs.
    ours = there["session"] - INHERITED - {"constructor", "length", "name", "prototype", "classes"}
    assert {"create", "run", "release", "verify", "profile", "timings"} <= ours
    for name in ours:
        assert re.search(rf"(?:[sS]ession)\.{name}\b", JAVASCRIPT), name
    (stats,) = re.findall(r"export interface Stats \{(.*?)\n\}", DECLARED, re.S)
    listed = JAVASCRIPT.partition("### `ort.stats()`")[2].partition("\n### ")[0]
    assert set(re.findall(r"readonly (\w+):", stats)) | {"url", "bytes"} == set(re.findall(r"`(\w+)`", listed))


def test_types_declare_what_is_exported() -> None:
    """And e2e/types/exports.ts holds their shapes against each other."""
    declared = set(re.findall(r"^export (?:class|function|const) (\w+)", DECLARED, re.M))
    assert declared == javascript()["ours"] - {"InferenceSession", "Tensor"}
    (session,) = re.findall(r"  interface InferenceSession \{(.*?)\n  \}", DECLARED, re.S)
    assert set(re.findall(r"^    (?:readonly )?(\w+)[(:]", session, re.M)) <= javascript()["session"]


def test_every_member_of_onnxruntime_common_is_told_of() -> None:
    """docs/compatibility.md; `node scripts/compatibility.mjs` writes it."""
    command = ["node", "--no-warnings", "scripts/compatibility.mjs", "--check"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


OF_BROWSERS = {"NoAdapter", "QuotaExceeded"}


def test_errors_are_those_of_both_languages() -> None:
    kinds = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and name in javascript()["ours"]}
    table = set(code(ERRORS.partition("| class | when |")[2]))
    assert table >= kinds - {"PyRuntimeError"} | OF_BROWSERS
    assert kinds == {n for n in javascript()["ours"] if n[0].isupper()} - OF_BROWSERS - {
        "InferenceSession",
        "Tensor",
        "TrainingSession",
    }


def test_each_error_has_a_page() -> None:
    """Its class and its message name it, and docs/errors/README.md lists it."""
    pages = {path.stem for path in (ROOT / "docs/errors").glob("*.md")} - {"README"}
    raised = {kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, PyRuntimeError)}
    named = {kind.__name__: kind for kind in raised if kind.help and kind is not UnsupportedSizes}
    assert raised - set(named.values()) == {PyRuntimeError, NeedsValue, UnsupportedSizes}
    assert pages == {*named} | OF_BROWSERS
    assert all(kind("").__notes__ == [f"Causes and remedies: pyruntime help {name}"] for name, kind in named.items())
    listed = ERRORS.partition("| class | when |")[2]
    assert set(code(listed)) == pages and all(f"]({page}.md)" in listed for page in pages)
    for page in pages:
        assert (ROOT / f"docs/errors/{page}.md").read_text().startswith(f"# {page}\n\n")


def test_python_names() -> None:
    """Methods and options: those named exist, those that exist are named; onnxruntime's in docs/compatibility.md."""
    methods, options, _ = re.split("\n## (?:Options of sessions|Programs written for onnxruntime)\n", PYTHON)
    named = {name.partition("(")[0] for name in code(methods)} - {"InferenceSession"}
    theirs = {name: public(getattr(onnxruntime, name)) for name in ("InferenceSession", "SessionOptions")}
    assert named | theirs["InferenceSession"] == public(InferenceSession)
    fields = {field.name for field in dataclasses.fields(SessionOptions)}
    told = {name.partition("(")[0] for name in code(options)} | {*declared(SessionOptions)}
    assert told - {"SessionOptions"} | theirs["SessionOptions"] == public(SessionOptions) | fields


def test_commands() -> None:
    assert set(code(COMMAND_LINE)) == set(COMMANDS)
