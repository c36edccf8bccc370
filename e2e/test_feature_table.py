"""Combinations of features that contain each pair which the table says works, in pages and in Pyodide; and the pairs
that it says are refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from e2e.conftest import Server, new_tab
from e2e.stock_pyodide import run_in_worker
from kit.feature_table import Verdict, attempt, refused, rows
from kit.native_rows import SAMPLING
from kit.row_tasks import adapter_of, check, model_of, task, weights_of
from pyruntime import InferenceSession, SessionOptions

ROWS = rows("JavaScript")
REFUSED = refused("JavaScript")
IN_PYODIDE = rows("Pyodide")
PLACES = sorted({(row["page"], row["thread"]) for row in IN_PYODIDE})
SERVERS = {"isolated": "isolated", "not isolated": "plain"}


@pytest.fixture(scope="module")
def pages(browser: Browser, servers: dict[str, Server]) -> Iterator[dict[str, Page]]:
    """A page of each isolation, in which rows run one after another."""
    tabs = {name: new_tab(browser, servers[kind]) for name, kind in SERVERS.items()}
    for tab in tabs.values():
        tab.open("/esm.html").evaluate("import('/feature_row.mjs')")
    yield {name: tab.page for name, tab in tabs.items()}
    for tab in tabs.values():
        tab.page.context.close()


def program(row: dict[str, str], folder: Path) -> bytes:
    """The row's model as a Program for its providers."""
    file = folder / "model.onnx"
    file.write_bytes(model_of(row))
    options = SessionOptions(**SAMPLING if row["caller"] == "TextGenerator" else {})
    if row["adapters"] == "adapters":
        options.adapters = {"one": adapter_of(row, "one")}
    session = InferenceSession(file, options)
    names = ["wasm"] if row["provider"] == "wasm" else ["webgpu", "wasm"]
    assume = [] if names == ["wasm"] else ["software"]
    exported = session.export(row["model"] == "Program with weights", providers=names, assume=assume)
    session.release()
    return exported


@pytest.mark.parametrize("row", ROWS, ids=[", ".join(row.values()) for row in ROWS])
def test_features_that_meet(row: dict[str, str], pages: dict[str, Page], tmp_path: Path) -> None:
    made = program(row, tmp_path) if row["model"].startswith("Program") else None
    found: list[Any] = pages[row["page"]].evaluate("(task) => runRow(task)", task(row, made))
    if row["caller"] == "training":
        found = [[loss, *weights_of(base64.b64decode(model))] for loss, model in found]
    check(row, found)


@pytest.mark.parametrize(("one", "other", "found"), REFUSED, ids=[f"{one}, {other}" for one, other, _ in REFUSED])
def test_pairs_that_are_refused(one: str, other: str, found: Verdict, pages: dict[str, Page], tmp_path: Path) -> None:
    """The session, or what uses it, cannot be created."""
    page, row = pages["isolated"], attempt(one, other)
    if one in ("Batcher", "TextGenerator") and other == "training":
        model = base64.b64encode(model_of(row)).decode()
        assert page.evaluate("([name, model]) => tryTaker(name, model)", [one, model]) == "TypeError"
        return
    made = program(row, tmp_path) if row["model"].startswith("Program") else None
    error, events = page.evaluate("(task) => tryRow(task)", task(row, made))
    assert error == found.error and not {"run", "step"} & {*events}


@pytest.mark.parametrize(("page", "thread"), PLACES, ids=[", ".join(place) for place in PLACES])
def test_in_pyodide(page: str, thread: str, built: None, browser: Browser, tmp_path: Path) -> None:
    own = [row for row in IN_PYODIDE if (row["page"], row["thread"]) == (page, thread)]
    programs = [program({**own[0], "model": "Program with weights"}, tmp_path)]
    given = {
        "tasks": [task(row) for row in own],
        "programs": [base64.b64encode(one).decode() for one in programs],
    }  # fmt: skip
    folder, models = tmp_path / "page", tmp_path / "models"
    folder.mkdir()
    models.mkdir()
    found = run_in_worker(
        browser, folder, models, "feature_rows_in_pyodide.py", json.dumps(given),
        isolated=page == "isolated", in_page=thread == "main thread",
    )  # fmt: skip
    for row, results in zip(own, found["rows"], strict=True):
        if row["caller"] == "training":
            results = [[loss, *weights_of(base64.b64decode(model))] for loss, model in results]
        check(row, results)
    assert found["programs"] == ["InvalidModel"]
