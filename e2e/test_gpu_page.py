"""The page "Your GPU" in Chromium (SwiftShader): a report of a few cases, and what it shares with the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from playwright.sync_api import Page

from bench import gpu, gpu_report
from bench.gpu_measure import shaders
from e2e.conftest import Tab
from e2e.test_demo import faults
from kit import gpu_cases
from kit.chromium import ROOT
from kit.gpu_values import array, drawn
from pyruntime import InferenceSession

SCHEMA = json.loads((ROOT / "bench/gpu_report.schema.json").read_text())
ADDRESS = "/site/gpu/index.html?only="
SHORT = "^(LSTM|GEMM 4096$|GEMM 1024, half|Llama)"


def measured(page: Page) -> None:
    page.click("#measure:enabled")
    page.wait_for_function("/^(Measured|Stopped)/.test(document.querySelector('#status').innerText.trim())")


def saved(page: Page, button: str, path: Path) -> Path:
    with page.expect_download() as download:
        page.click(button)
    download.value.save_as(path)
    return path


def test_report(tab: Callable[..., Tab], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the schema, the arithmetic and the cases of the command, which compares both; the picture is a PNG."""
    page = tab().open(f"{ADDRESS}{SHORT}&tune=1")
    measured(page)
    assert "Measured 4 cases" in page.inner_text("#status") and "is software" in page.inner_text("#state")
    rows = page.locator("#rows tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["GEMM 4096", "GEMM 1024, half", "LSTM, 7 steps of 128"]
    assert "too long" in rows[0] and "no half floats" in rows[1] and "% of" in rows[2]
    assert "×" in page.inner_text("#network-rows") and page.is_enabled("#measure") and page.is_disabled("#stop")
    page.click("#adapter summary")
    assert "maxBufferSize" in page.inner_text("#limits") and not faults(page)
    path = saved(page, "#json", tmp_path / "page.json")
    assert saved(page, "#picture", tmp_path / "page.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    report = gpu_report.read(path)
    check(report)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy")
    page.wait_for_function("document.querySelector('#status').innerText.includes('in the clipboard')")
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == report
    native = tmp_path / "native.json"
    assert gpu.main(["--filter", "^LSTM", "--report", str(native)]) == 0
    assert gpu.main(["--compare", str(path), str(native)]) == 0
    assert "LSTM, 7 steps of 128" in capsys.readouterr().out.rpartition("A: ")[2]


def check(report: dict[str, Any]) -> None:
    jsonschema.validate(report, SCHEMA)
    (case,) = [case for case in report["cases"] if "share" in case]
    table = gpu_cases.everything()
    assert report["work"] == table["work"] and not report["complete"] and report["adapter"]["software"]
    told = next(each for each in table["cases"] if each["name"] == case["name"])
    again = gpu_report.entry(told, report["peaks"], case)
    assert again.keys() == case.keys() and again["bound"] == case["bound"]
    for key in ("gflops", "gbs", "ofPeak", "ofBandwidth", "share"):
        assert again[key] == pytest.approx(case[key])
    assert (
        case["error"] < 1e-5 and report["models"][0]["error"] < 2e-2
    )  # rows of 4-bit products may be rounded to 8 bits
    settled = json.loads(json.dumps(report))
    gpu_report.settle(settled)
    assert settled == report


def test_stop_and_narrow_screens(tab: Callable[..., Tab]) -> None:
    """Stopped, by the keyboard, it keeps what is measured. On a phone nothing is wider than the screen."""
    made = tab()
    made.page.set_viewport_size({"width": 390, "height": 800})
    page = made.open(ADDRESS + "^(LSTM|GRU|add)")
    page.wait_for_selector("#measure:enabled")
    page.focus("#measure")
    page.keyboard.press("Enter")
    page.wait_for_selector("#rows tr")
    page.keyboard.press("Enter")  # the focus is on Stop
    page.wait_for_function("document.querySelector('#status').innerText.startsWith('Stopped after')")
    assert 1 <= page.locator("#rows tr").count() <= 2
    assert page.evaluate("document.activeElement.id") == "measure"
    assert page.evaluate("document.documentElement.scrollWidth") == 390 and not faults(page)


def test_without_webgpu(tab: Callable[..., Tab]) -> None:
    made = tab()
    made.page.add_init_script("Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined });")
    page = made.open(ADDRESS)
    page.wait_for_selector("#status.done")
    assert "no WebGPU" in page.inner_text(".unsupported") and "python -m bench gpu" in page.inner_text(".unsupported")
    assert page.is_disabled("#measure") and not faults(page)


def test_numbers_and_shaders_are_those_of_the_command(tab: Callable[..., Tab]) -> None:
    page = tab().open(ADDRESS)
    ask = "async ([file, name, given]) => { const m = await import(`./${file}`); return [...m[name](given)]; }"
    for type_, high, low in (("float32", 0.75, None), ("float16", 0.25, None), ("uint8", 255, 0), ("int64", 90, -3)):
        values = drawn(type_, (40, 25), 7, high, low)
        want = array(values).ravel()
        got = page.evaluate(ask.replace("(given)]", "(given)].map(Number)"), ["values.js", "elementsOf", values])
        np.testing.assert_array_equal(got, want.view(np.uint16) if type_ == "float16" else want)
    model, _ = gpu_cases.opened(next(c for c in gpu_cases.everything()["cases"] if c["name"].startswith("GRU")))
    listing = InferenceSession(model, providers=["webgpu"]).listing(code=True)
    got = dict(page.evaluate(ask, ["measure.js", "shadersOf", listing]))
    want = shaders(listing)
    assert len(want) == 2 and {number: source.strip() for number, source in got.items()} == want
