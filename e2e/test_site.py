"""Pages of the demo site that show the engine: the front page, the playground, the benchmark, the notebook."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from e2e.conftest import Tab
from e2e.test_demo import faults
from kit.chromium import ROOT

PACKAGE = ROOT / "build/programs/rapidocr_onnxruntime"
# Of the engine, before the first result of the front page; files that are stored for offline visits come later.
FETCHED = ("ort.mjs", "worker.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python.image.wasm")
CLAIM = re.compile(r"<strong data-claim>([\d.]+)</strong>")


@pytest.mark.skipif(not PACKAGE.exists(), reason="the networks that read text are a package of tests/programs")
def test_front_page_reads_a_photograph(tab: Callable[..., Tab]) -> None:
    """The menu is read when the page opens, then a picture of the visitor's; View code shows the page's own lines."""
    made = tab()
    sizes: dict[str, int] = {}
    made.page.on("response", lambda got: sizes.update({got.url: int(got.headers.get("content-length", 0))}))
    page = made.open("/site/index.html")
    page.wait_for_function("document.querySelector('#engine-bytes').textContent.endsWith('MB')")
    engine = sum(size for url, size in sizes.items() if url.rsplit("/", 1)[1] in FETCHED)
    assert float(page.inner_text("#engine-bytes").removesuffix("MB")) == round(engine / 1e6)
    page.wait_for_selector("#status.done")
    text = page.inner_text("#lines")
    assert all(word in text for word in ("Espresso", "Cappuccino", "4.20", "Please order at the bar")), text
    counts = {
        page.locator("#regions polygon").count(),
        page.locator("#lines li").count(),
        int(page.inner_text("#count")),
    }
    assert len(counts) == 1
    assert re.fullmatch(r"[\d.]+ m?s", page.inner_text("#time"))
    assert "16 MB" in page.inner_text("#model-bytes")
    assert not faults(page)
    page.set_input_files("#file", ROOT / "demo/read/page.jpg")
    page.wait_for_function("document.querySelector('#lines').textContent.includes('from old Miss Watson')")
    page.click("#tab-code")
    page.wait_for_function(
        "document.querySelector('#view-code-tab').textContent.includes('ort.InferenceSession.create')"
    )
    page.click("#view-code")
    page.wait_for_selector("dialog.code pre span")
    assert "class Reader" in page.inner_text("dialog.code") and not faults(page)


def test_front_page_without_its_networks(tab: Callable[..., Tab]) -> None:
    made = tab()
    made.page.route("**/models/**", lambda route: route.fulfill(status=404))
    page = made.open("/site/index.html")
    page.wait_for_selector(".unsupported")
    assert "make serve" in page.inner_text(".unsupported")
    made.forgive("404")


def test_claims_are_those_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    claims = CLAIM.findall((ROOT / "demo/index.html").read_text(encoding="utf-8"))
    assert len(claims) == 3 and all(claim in readme for claim in claims)


def test_playground(tab: Callable[..., Tab]) -> None:
    """An operator is compiled while it is typed; its code and its mistakes are shown."""
    page = tab().open("/site/playground/index.html")
    page.wait_for_selector("#status.done")
    assert "(func $" in (page.text_content("#view-wasm") or "") and "@compute" in (
        page.text_content("#view-webgpu") or ""
    )
    assert page.inner_text("#values figcaption >> nth=1") == "Output [4, 6]"
    assert not faults(page)
    page.click("#examples button:text('Edges')")
    page.wait_for_function("document.querySelector('#values').textContent.includes('Output [159, 239]')")
    assert page.locator("#values canvas").count() == 2
    page.click("#examples button:text('Swish')")
    page.wait_for_function("document.querySelector('#values').textContent.includes('Output [2, 6]')")
    page.click("#editor .cm-content")
    page.keyboard.press("Control+End")
    page.keyboard.type("nonsense")
    page.wait_for_function("document.querySelector('#problem').textContent.startsWith('Line 6: NameError')")
    assert not faults(page)
    for _ in "nonsense":
        page.keyboard.press("Backspace")
    page.wait_for_selector("#problem", state="hidden")
    page.fill("#shapes", "3, x")
    page.wait_for_function("document.querySelector('#problem').textContent.includes('is no size')")
    page.fill("#shapes", "5")
    page.wait_for_function("document.querySelector('#values').textContent.includes('Output [5]')")


def test_benchmark(tab: Callable[..., Tab]) -> None:
    """Both runtimes give the same results; without the peer the page says so."""
    made = tab()
    made.page.add_init_script("delete Navigator.prototype.serviceWorker")  # its answers would pass the routes below by
    page = made.open("/site/benchmark/index.html")
    page.route("**/models/**", lambda route: route.fulfill(status=404))  # two models are enough here
    page.click("#measure")
    page.wait_for_function("document.querySelector('#status').textContent.startsWith('Measured')")
    assert page.inner_text("#counted") == "2" and "×" in page.inner_text("#mean")
    assert "differ" not in page.inner_text("#rows")
    assert page.inner_text("#skipped").count("this copy of the site was built without it") == 10
    assert not faults(page)
    made.forgive("404")
    page.route("**/onnxruntime-web/**", lambda route: route.fulfill(status=404))
    page.click("#measure")
    page.wait_for_selector("#no-peer .unsupported")
    made.forgive("404")


def test_cells_of_python(tab: Callable[..., Tab]) -> None:
    """The first cell runs by itself, others by keys; an error is shown in its cell."""
    page = tab().open("/site/notebook/index.html")
    page.wait_for_function("document.querySelector('.cell pre')?.textContent.includes('operators')")
    page.locator(".cell textarea >> nth=1").press("Shift+Enter")
    page.wait_for_function("document.querySelectorAll('.cell pre')[1].textContent.includes('map mul(tanh(')")
    page.click("#add")
    page.fill(".cell textarea >> nth=2", "1 / 0")
    page.locator(".cell textarea >> nth=2").press("Shift+Enter")
    page.wait_for_function("document.querySelectorAll('.cell pre')[2].textContent.includes('division by zero')")
    assert ".whl" in page.inner_text("#install") and not faults(page)
