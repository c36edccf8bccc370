"""Combinations of features that contain each pair which the table says works, in pages; and the pairs that it says are
refused."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from e2e.conftest import Server, new_tab
from kit.feature_table import rows
from kit.native_rows import SAMPLING
from kit.row_tasks import adapter_of, check, model_of, task, weights_of
from pyruntime import InferenceSession, SessionOptions

ROWS = rows("JavaScript")
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
