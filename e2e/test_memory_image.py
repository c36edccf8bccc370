"""Python starts from the image of its memory that the package brings: web/worker/interpreter/memory_image.js."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Route

from e2e.conftest import Profile, Server, Tab
from e2e.test_loading import Y
from kit.chromium import ROOT

CREATE = """
  const session = await ort.InferenceSession.create('/models/affine.onnx');
  const x = new ort.Tensor('float32', Float32Array.from([0, 1, 2, 3, 4, 5, 6, 7]), [2, 4]);
  const { y } = await session.run({ x });
  await session.release();
  return Array.from(y.data);
"""


WHOLE = ["engine.zip", "pyodide.rest.wasm", "python_rest.zip", "python_stdlib.zip"]


def fetched(tab: Tab) -> list[str]:
    """Which archives, and whether the interpreter's second half."""
    return sorted({url.rpartition("/")[2] for url in tab.requests if url.endswith((".zip", ".rest.wasm"))})


@pytest.mark.parametrize("profile", ["isolated", "plain", "strict"], indirect=True)
def test_a_start_needs_no_archive_until_something_rare_is_imported(profile: Profile) -> None:
    tab = profile.tab()
    np.testing.assert_allclose(tab.run(CREATE), Y.ravel(), rtol=1e-5)
    assert fetched(tab) == []
    late = """
      import sys, js
      before = 'pyruntime.providers.webgpu.adapter' in sys.modules
      import pyruntime.providers.webgpu.adapter, encodings.cp437, colorsys
      [before, js.Array.isArray(js.Array.new()), "é".encode("cp437")[0]]
    """
    assert tab.run("return ort.python(arg)", late) == [False, True, 0x82]
    assert fetched(tab) == WHOLE
    tab.check()


def test_pages_are_where_they_are(browser: Browser, servers: dict[str, Server]) -> None:
    """Not where the image was made."""
    context = browser.new_context(timezone_id="Asia/Tokyo")
    tab = Profile(context, servers["isolated"]).tab()
    np.testing.assert_allclose(tab.run(CREATE), Y.ravel(), rtol=1e-5)
    assert fetched(tab) == []
    ask = "return ort.python('import time; [time.timezone, time.altzone, time.daylight, *time.tzname]')"
    assert tab.run(ask) == [-32400, -32400, 0, "UTC+0900", "UTC+0900"]
    context.close()


def test_pages_do_not_draw_the_same_numbers(profile: Profile) -> None:
    draw = "return ort.python('import random; random.random()')"
    drawn = [profile.tab().run(draw) for _ in range(2)]
    assert drawn[0] != drawn[1]


IMAGE, INTERPRETER = "python.image.wasm", "pyodide.asm.wasm"
OTHERS: dict[str, tuple[str, Callable[[bytes], bytes] | None]] = {
    "missing": (IMAGE, None),
    "empty": (IMAGE, lambda image: b""),
    "cut": (IMAGE, lambda image: image[: len(image) // 2 & ~3]),
    "damaged": (IMAGE, lambda image: image[: len(image) // 2] + b"?" + image[len(image) // 2 + 1 :]),
    "of another build": ("worker.mjs", lambda code: re.sub(b'"[0-9a-f]{16}"', b'"0123456789abcdef"', code)),
    "of another interpreter": (INTERPRETER, lambda wasm: wasm.replace(b"division by zero", b"Division by zero")),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_without_the_image_python_starts_as_any(profile: Profile, kind: str) -> None:
    file, change = OTHERS[kind]

    def answer(route: Route) -> None:
        if not change:
            return route.abort()
        response = route.fetch()
        route.fulfill(response=response, body=change(response.body()))

    profile.context.route(f"**/{file}", answer)
    tab = profile.tab()
    np.testing.assert_allclose(tab.run(CREATE), Y.ravel(), rtol=1e-5)
    assert fetched(tab) == ["engine.zip", "pyodide.rest.wasm", "python_stdlib.zip"]
    for text in ("without the image of its memory", "ERR_FAILED"):
        tab.forgive(text)
    tab.check()


def answered(answer: dict[str, Any] | None, route: Route) -> None:
    """With nothing: the connection breaks; without an answer: as ever."""
    if answer is None:
        route.continue_()
    elif answer:
        route.fulfill(**answer)
    else:
        route.abort()


@pytest.mark.parametrize(
    ("archive", "module"), [("python_stdlib", "encodings.cp437"), ("engine", "pyruntime.ops.ml.trees")]
)
def test_an_archive_that_cannot_be_had(profile: Profile, archive: str, module: str) -> None:
    """What needs it fails by the file's name, also where it is another file; later it does not."""
    tab = profile.tab()
    ask = f"return ort.python('import {module} as c; c.__name__').catch((e) => e.name + e.message)"
    answers: list[dict[str, Any]] = [{}, {"body": "<p>not found</p>"}, {"path": ROOT / "dist" / "python_rest.zip"}]
    # One route throughout: that there is one, a worker that runs hears some time later (CI, once).
    profile.context.route(f"**/{archive}.zip", lambda route: answered(answers[0] if answers else None, route))
    while answers:
        told = str(tab.run(ask))
        assert "SessionFailed" in told and f"/{archive}.zip" in told, (answers[0], told)
        del answers[0]
    tab.forgive("ERR_FAILED")
    mine = "try:\n  import nowhere\nexcept ImportError: pass\nraise ValueError(1)"
    assert "ValueError" in str(tab.run("return ort.python(arg).catch((e) => e.message)", mine))
    assert tab.run(ask) == module
    np.testing.assert_allclose(tab.run(CREATE), Y.ravel(), rtol=1e-5)
    tab.check()
