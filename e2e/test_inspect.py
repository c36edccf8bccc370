"""`ort.inspect`: a page tells what a model is and will take, and fetches next to nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from playwright.sync_api import Browser

from e2e.conftest import Tab, new_tab
from kit import small_models
from kit.chromium import MOUNTS
from pyruntime import inspect
from pyruntime.cli.serve import Handler, Server

INSPECT = "return ort.inspect(arg).catch((error) => [error.type, error.message])"


class Odd(Handler):
    """Sends no parts of what lies under /whole/."""

    def send_head(self) -> Any:
        if self.path.startswith("/whole/"):
            del self.headers["Range"]
        return super().send_head()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inspected")
    large = small_models.products(8, 1024)
    onnx.save(large, made / "inside.onnx")
    onnx.save(large, made / "outside.onnx", save_as_external_data=True, location="weights #1.bin")
    return made


@pytest.fixture(scope="module")
def tab(built: None, browser: Browser, folder: Path) -> Iterator[Tab]:
    class Site(Server):
        handler = Odd

    with Site({**MOUNTS, "/large/": folder, "/whole/": folder}) as server:
        tab = new_tab(browser, server)
        tab.open("/esm.html")
        yield tab
        tab.page.context.close()


@pytest.mark.parametrize("name", ["inside", "outside"])
def test_of_an_address(tab: Tab, folder: Path, name: str) -> None:
    found, native = tab.run(INSPECT, f"/large/{name}.onnx"), inspect(str(folder / f"{name}.onnx"))
    assert isinstance(found, dict) and 0 < found["fetched"] < found["size"] / 100
    for key in native.keys() - {"fetched", "fits", "memory", "program"}:
        assert found[key] == native[key], key
    assert found["memory"]["weights"] == native["memory"]["weights"] and found["memory"]["assumed"] == ["n"]
    assert found["fits"]["here"] is True and str(found["memory"]["peak"]) in found["fits"]["why"]
    tab.check()


def test_its_memory_is_that_of_the_session(tab: Tab) -> None:
    told = tab.run("""
      const options = { freeDimensionOverrides: { n: 64 }, intraOpNumThreads: 1 };
      const { memory } = await ort.inspect('/large/inside.onnx', options);
      const session = await ort.InferenceSession.create('/large/inside.onnx', options);
      await session.run({ x: new ort.Tensor('float32', new Float32Array(64 * 1024), [64, 1024]) });
      const held = await session.memory();
      await session.release();
      return [memory.weights / held.weights, memory.run / held.peak, memory.peak / held.arena];
    """)
    assert told == pytest.approx([1, 1, 1], rel=0.02)
    tab.check()


@pytest.mark.parametrize("kind", ["blob()", "arrayBuffer()"])
def test_of_what_is_there(tab: Tab, kind: str) -> None:
    found = tab.run(f"return ort.inspect(await (await fetch('/models/affine.onnx')).{kind})")
    assert isinstance(found, dict) and found["operators"] == {"MatMul": 1, "Add": 1, "Relu": 1}
    assert found["inputs"][0] == {"name": "x", "type": "tensor(float)", "shape": ["batch", 4]}


REFUSED = {
    "/whole/inside.onnx": ("InvalidModel", "its server ignores range requests, 335"),
    "/large/nowhere.onnx": ("InvalidModel", "HTTP 404"),
    "/esm.html": ("InvalidModel", "a web page"),
}


@pytest.mark.parametrize("url", REFUSED)
def test_refused(tab: Tab, url: str) -> None:
    kind, text = REFUSED[url]
    found = tab.run(INSPECT, url)
    assert isinstance(found, list) and found[0] == kind and text in found[1]
    tab.forgive("404")
    tab.check()


def test_small_files_come_whole(tab: Tab) -> None:
    assert tab.run("return (await ort.inspect('/models/affine.onnx')).unsupported") == []


def test_it_can_be_stopped(tab: Tab) -> None:
    script = "return ort.inspect('/large/inside.onnx', { signal: AbortSignal.abort() }).catch((error) => error.type)"
    assert tab.run(script) == "Terminated"
