"""Interpreter and library are split (worker/interpreter/split_wasm.js, scripts/pack.py): sessions need one half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.conftest import Tab
from e2e.test_loading import RUN, assert_affine
from kit.models import MODELS

REST = "/pyodide.rest.wasm"
LIBRARY = "/python_rest.zip"
DECIMAL = "return ort.python('import decimal; str(decimal.Decimal(1) / 7)')"
MODULES = """return ort.python(`
import difflib, email.message, encodings.cp1252, html, importlib.resources
[html.escape("<"), "€".encode("cp1252")[0], difflib.__file__, email.message.__file__]`)"""
MAKE = "const session = await ort.InferenceSession.create('/models/affine.onnx');"


def loads(tab: Tab, file: str) -> int:
    return sum(url.endswith(file) for url in tab.requests)


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_the_second_half_comes_when_it_is_needed(kind: str, tab: Callable[..., Tab]) -> None:
    page = tab(kind)
    page.open("/esm.html")
    assert_affine(page.run(MAKE + RUN))
    assert (loads(page, REST), loads(page, LIBRARY)) == (0, 0)
    assert page.run(DECIMAL) == "0.1428571428571428571428571429"
    assert loads(page, REST) == 1
    escaped, euro, *files = page.run(MODULES)  # type: ignore[misc]
    assert (escaped, euro) == ("&lt;", 0x80)
    assert all(file.startswith("/lib/python_rest.zip/") for file in files)
    assert_affine(page.run(MAKE + RUN))
    assert (loads(page, REST), loads(page, LIBRARY)) == (1, 1)


@pytest.mark.parametrize("name", ["gpt2_tiny", "llama_mini.qdq", "lstm_tagger", "superres", "vit_tiny", "yolo_nms"])
def test_first_visits_need_the_first_half_alone(name: str, tab: Callable[..., Tab]) -> None:
    """Else a first visit waits for another download: what the engine calls has changed since it was profiled."""
    MODELS[name].path()
    page = tab("plain")
    page.open("/esm.html")
    page.run("await ort.InferenceSession.create(arg)", f"/zoo/{name}.onnx")
    assert loads(page, REST) == 0, "python -m scripts.profile_python"


TABLES = """
import hashlib, unicodedata
known = [c for c in map(chr, range(0x110000)) if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Cs")]
def of(texts):
    return hashlib.sha256("\\n".join(texts).encode()).hexdigest()
def decoded(codec):
    pairs = (bytes([a, b]) for a in range(128, 256) for b in range(64, 256))
    return [pair.decode(codec, "replace") for pair in pairs]
found = {codec: of(decoded(codec)) for codec in "big5 cp949 euc_jp gbk shift_jis".split()}
found["encoded"] = of(text.encode("gb18030").hex() for text in known)
found["names"] = of(unicodedata.name(c, "") for c in known)
found["looked up"] = all(unicodedata.lookup(name) == c for c in known[::99] if (name := unicodedata.name(c, "")))
found["parts"] = of(unicodedata.normalize("NFKD", c) for c in known)
found
"""


def test_tables_that_come_with_the_second_half(tab: Callable[..., Tab]) -> None:
    """Maps of character sets and Unicode's names are as here, though the interpreter is of another version."""
    page = tab()
    page.open("/esm.html")
    assert_affine(page.run(MAKE + RUN))
    assert loads(page, REST) == 0
    here: dict[str, Any] = {}
    exec(TABLES, here)
    assert page.run("return ort.python(arg)", TABLES) == here["found"]
    assert loads(page, REST) == 1


AWAITED = """
import asyncio
from js import fetch
slept = await asyncio.gather(*(asyncio.sleep(0.01 * n, n) for n in range(3)))
[slept, (await fetch("/esm.html")).status, type(asyncio.get_running_loop()).__name__, asyncio.__name__]"""


# No word of it tells that it waits.
PROMISE = """
from js import Promise
def of(n): return Promise.resolve(n).then(lambda x: x + 1)
exec("a" + "sync def both(): return [a" + "wait of(2), a" + "wait of(3)]", globals())
both()"""


def test_asyncio_comes_when_it_is_used(tab: Callable[..., Tab]) -> None:
    """A start has a short module in its place; where the rest cannot be had, it stays one. What is given is awaited."""
    page = tab()
    page.page.context.route(f"**{LIBRARY}", lambda route: route.abort())
    page.open("/esm.html")
    assert page.run("return ort.python('1 + 1')") == 2
    assert loads(page, LIBRARY) == 0
    told: Any = page.run("return await ort.python(arg).catch((e) => e.message)", AWAITED)
    page.page.context.unroute(f"**{LIBRARY}")
    page.forgive("net::ERR_FAILED")
    assert "asyncio" in told and LIBRARY in told, told
    assert page.run("return ort.python(arg)", PROMISE) == [3, 4]
    assert page.run("return ort.python(arg)", AWAITED) == [[0, 1, 2], 200, "WebLoop", "asyncio"]
    assert_affine(page.run(MAKE + RUN))


@pytest.mark.parametrize("fault", ["aborted", "cut"])
def test_the_second_half_cannot_be_had(fault: str, tab: Callable[..., Tab]) -> None:
    """Who called is told which file it is; the next session starts another worker, which gets it."""
    page = tab()
    context = page.page.context
    act = {"aborted": lambda route: route.abort(), "cut": lambda route: route.fulfill(body=b"\0asm\1\0\0\0")}[fault]
    context.route(f"**{REST}", act)
    page.open("/esm.html")
    told: Any = page.run(MAKE + DECIMAL.replace("return ", "return await ") + ".catch((e) => [e.name, e.message])")
    context.unroute(f"**{REST}")
    page.forgive(REST)
    for text in ("fatal error", "Pyodide"):
        page.forgive(text)
    assert told[0] == "SessionFailed" and REST in told[1], told
    assert page.run(DECIMAL) == "0.1428571428571428571428571429"
    assert_affine(page.run(MAKE + RUN))


def test_the_rest_of_the_library_cannot_be_had(tab: Callable[..., Tab]) -> None:
    """The import fails, as any may; later it does not."""
    page = tab()
    page.page.context.route(f"**{LIBRARY}", lambda route: route.abort())
    page.open("/esm.html")
    told: Any = page.run(MODULES.replace("return ", "return await ") + ".catch((e) => e.message)")
    page.page.context.unroute(f"**{LIBRARY}")
    page.forgive("net::ERR_FAILED")
    assert "difflib" in told and LIBRARY in told, told
    assert page.run(MODULES)[0] == "&lt;"  # type: ignore[index]


IN_PYTHON = """return ort.python(`
import sys
[n for n in sys.modules if n.startswith("pyruntime.training.")]`)"""
LEARN = """
const session = await ort.TrainingSession.create('/models/affine.onnx', { loss: { mse: 'y' }, mode: 'inference' });
await session.release();
"""


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_inference_loads_nothing_of_training(kind: str, tab: Callable[..., Tab]) -> None:
    """Neither JavaScript nor Python: the page fetches and the worker imports training when a session trains."""
    page = tab(kind)
    page.open("/esm.html")
    assert_affine(page.run(MAKE + RUN))
    assert not [url for url in page.requests if url.endswith(("/training.mjs", "/engine.zip"))]
    assert page.run(IN_PYTHON) == []
    page.run(LEARN)
    assert loads(page, "/training.mjs") > 0
    assert "pyruntime.training.graph.training_graph" in page.run(IN_PYTHON)  # type: ignore[operator]
