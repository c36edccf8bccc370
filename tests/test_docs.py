"""The documentation's examples run. Those for pages do so in e2e/test_docs.py."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

import pyruntime.ops  # noqa: F401  what examples add to
from kit.docs import FILES, ROOT, Block, blocks
from pyruntime.cli import main
from pyruntime.compiler import user_passes
from pyruntime.frontend import registry
from pyruntime.placement import provider_list

# Excerpts that show operators as the project has them: without imports, and the first to define them.
EXCERPTS = {
    "docs/operators.md": "from pyruntime import elementwise, op\nfrom pyruntime.frontend import registry\n"
    "from pyruntime.ir.expr import X, Y, exp\nregistry.table().clear()\n"
}


@pytest.fixture(autouse=True)
def registered_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Operators, passes and providers that an example registers are gone after it."""
    table: Any = registry.table()
    before = {key: list(versions) for key, versions in table.items()}
    monkeypatch.setattr(user_passes, "_added", [])
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


@pytest.mark.parametrize("file", FILES)
def test_links_and_files_exist(file: str) -> None:
    text = (ROOT / file).read_text()
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert not [link for link in links if not ((ROOT / file).parent / link).exists()]
    named = re.findall(r"`((?:pyruntime|providers|web|tests|e2e|scripts|docs)/[\w/.-]+\.\w+)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]


def test_records_of_decisions_are_short() -> None:
    records = sorted(ROOT.glob("docs/adr/*.md"))
    assert [p.name for p in records if len(p.read_text().splitlines()) > 40] == []
    numbers = [p.name.partition("-")[0] for p in records]
    assert len(numbers) == len(set(numbers))
    assert [p.name for p in records if not re.match(rf"# {int(p.name[:4])}\. ", p.read_text())] == []
