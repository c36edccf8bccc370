"""The documentation's examples run. Those for pages do so in e2e/test_docs.py, parts of files with these files."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyruntime.ops  # noqa: F401  what examples add to
from kit.docs import ROOT, Block, all_blocks, blocks, write_models
from kit.once import once
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


@pytest.mark.filterwarnings("ignore:.*computes on the CPU")  # as the adapters of machines that test do
@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_examples_run(
    block: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    monkeypatch.chdir(ROOT)
    once(tmp_path_factory, "models of the documentation", write_models)
    code = EXCERPTS.get(block.file, "") + block.text
    exec(compile(code, str(block), "exec"), {"__name__": "example"})


def test_python_examples_have_the_types_of_the_package(tmp_path: Path) -> None:
    """Strict programs that use the package as the documentation does; the examples' own functions have no types."""
    for block in filter(lambda block: block.is_for_users, blocks("python")):
        (tmp_path / f"{re.sub(r'[^a-z0-9]', '_', str(block).lower())}.py").write_text(block.text)
    options = ["--strict", "--allow-untyped-defs", "--allow-untyped-calls", "--config-file", os.devnull]
    command = [sys.executable, "-m", "mypy", *options, "--cache-dir", ROOT / "build/mypy-examples", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line for line in errors if '"onnxruntime"' not in line] == []  # which has none
    assert re.search(r"checked (\d\d+) source files|no issues", done.stdout), done.stdout + done.stderr


def commands() -> list[Any]:
    lines = [(b, line.partition("#")[0].strip()) for b in blocks("console") for line in b.text.splitlines()]
    return [pytest.param(line, id=f"{b.file}: {line}") for b, line in lines if line.startswith("pyruntime ")]


@pytest.mark.parametrize("line", commands())  # in order: later ones read what earlier ones wrote
def test_commands_run(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    (ROOT / "build").mkdir(exist_ok=True)
    assert main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out


# Commands that other tests run, such as e2e/test_examples.py and tests/test_gpu_report.py, or that print nothing.
ELSEWHERE = re.compile(r"(npm install|pip install|make|python -m bench gpu) ")


def test_every_block_runs_somewhere() -> None:
    """Blocks of users' pages are of a language that tests run, or a part of a file that tests run."""
    for block in filter(lambda block: block.is_for_users, all_blocks()):
        if "/" in block.title:
            part, whole = (
                "\n".join(map(str.strip, t.splitlines())) for t in (block.text, (ROOT / block.title).read_text())
            )
            assert f"\n{part}\n" in f"\n{whole}\n", f"{block}: not in {block.title}"
        elif block.language == "console":
            others = [line for line in block.text.splitlines() if not line.startswith("pyruntime ")]
            assert all(map(ELSEWHERE.match, others)), f"{block}: {others}"
        elif block.language == "toml":
            tomllib.loads(block.text)
        else:
            assert block.language in ("python", "js", "html", "text") or block.file == "README.md", str(block)


@pytest.mark.parametrize("script", sorted((ROOT / "tests/conversions").glob("*.py")), ids=lambda path: path.stem)
def test_conversions(script: Path, tmp_path: Path) -> None:
    """Programs that convert models of other frameworks and compare the results."""
    framework = {"from_keras": "keras", "from_pytorch": "torch", "from_scikit_learn": "skl2onnx"}[script.stem]
    path = os.pathsep.join([str(ROOT / "build/programs"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    there = subprocess.run([sys.executable, "-c", f"import {framework}"], env=environment, capture_output=True)
    if there.returncode:
        pytest.skip(f"{framework} is not installed: half a gigabyte, which the tests do not fetch")
    done = subprocess.run([sys.executable, script], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_decisions_are_short_and_listed() -> None:
    records = sorted(ROOT.glob("docs/adr/[0-9]*.md"))
    listed = (ROOT / "docs/adr/README.md").read_text()
    for path in records:
        text = path.read_text()
        head = re.match(r"# (\d+)\. (.*)\n\nStatus: (.*)\n\nDate: (\d{4}-\d\d-\d\d)\n", text)
        assert head and int(head[1]) == int(path.name[:4]) and len(text.splitlines()) <= 60, path.name
        assert f"| {head[1]} | [{head[2]}]({path.name}) | {head[3]} | {head[4]} |" in listed, path.name
