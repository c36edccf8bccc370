"""The documentation's examples run. Those for pages do so in e2e/test_docs.py."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

import pyruntime.ops  # noqa: F401  what examples add to
from kit.docs import ROOT, Block, blocks
from pyruntime.cli import main
from pyruntime.compiler import user_passes
from pyruntime.frontend import registry
from pyruntime.placement import provider_list

# Code before a page's examples that show the project's own operators: imports, and a table without these operators.
EXCERPTS = {
    "docs/operators.md": "from pyruntime import elementwise, op\nfrom pyruntime.frontend import registry\n"
    "from pyruntime.ir.expr import X, Y, exp\nregistry.table().clear()\n"
}


@pytest.fixture(autouse=True)
def registered_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Removes the operators, passes and providers that an example registers."""
    table: Any = registry.table()
    before = {key: list(versions) for key, versions in table.items()}
    monkeypatch.setattr(user_passes, "_registered", [])
    monkeypatch.setattr(provider_list, "_registered", {})
    yield
    table.clear()
    table.update(before)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_examples_run(block: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    code = EXCERPTS.get(block.file, "") + block.text
    exec(compile(code, str(block), "exec"), {"__name__": "example"})


def commands() -> list[Any]:
    lines = [(b, line.partition("#")[0].strip()) for b in blocks("console") for line in b.text.splitlines()]
    return [pytest.param(line, id=f"{b.file}: {line}") for b, line in lines if line.startswith("pyruntime ")]


@pytest.mark.parametrize("line", commands())  # in order: later ones read what earlier ones wrote
def test_commands_run(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    (ROOT / "build").mkdir(exist_ok=True)
    assert main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out


def test_decisions_are_short_and_listed() -> None:
    records = sorted(ROOT.glob("docs/adr/[0-9]*.md"))
    listed = (ROOT / "docs/adr/README.md").read_text()
    for path in records:
        text = path.read_text()
        head = re.match(r"# (\d+)\. (.*)\n\nStatus: (.*)\n\nDate: (\d{4}-\d\d-\d\d)\n", text)
        assert head and int(head[1]) == int(path.name[:4]) and len(text.splitlines()) <= 60, path.name
        assert f"| {head[1]} | [{head[2]}]({path.name}) | {head[3]} | {head[4]} |" in listed, path.name
