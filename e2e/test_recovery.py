"""Each fault of kit/faults.py in the worker of a page: the result is right, on the next provider if the GPU cannot give
it, and the session says so once."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page

from e2e.conftest import Server, Tab, new_tab
from e2e.test_webgpu_faults import worker
from kit.faults import NODES, NOTHING, SESSION, TABLE, Fault, feed, model, right

ROWS = (32, 64, 96)

INJECTOR = Path(__file__).with_name("pages").joinpath("gpu_faults.js").read_text()

# In the page
HELPERS = """
  const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  globalThis.model = decode(arg.model);
  const base = { executionProviders: ['webgpu', 'wasm'], extra: { session: { disable_program_cache: '1' } } };
  globalThis.create = (fallback, gpuTimeout) => ort.InferenceSession.create(model, { ...base, fallback, gpuTimeout });
  const floats = (text) => new Float32Array(decode(text).buffer);
  globalThis.isRight = async (session, rows) => {
    const [x, y, e] = arg.cases[rows].map(floats);
    const results = await session.run({ x: new ort.Tensor('float32', x, [rows, 128]) });
    const isNear = (v, expected) => Math.abs(v - expected) <= 1e-3 * Math.abs(expected);
    return results.y.data.every((v, i) => isNear(v, y[i])) && results.e.data.every((v, i) => isNear(v, e[i]));
  };
"""


OTHER = """
  globalThis.other = await ort.InferenceSession.create(model, { executionProviders: ['webgpu'] });
  await globalThis.other.run({ x: new ort.Tensor('float32', Float32Array.from(x), [64, 128]) });
  return (await globalThis.other.memory()).gpu;
}"""


def encoded(x: Any) -> str:
    return base64.b64encode(x if isinstance(x, bytes) else x.tobytes()).decode()


class Recovering:
    """A page with sessions that meet faults."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.page: Page = tab.open("/esm.html")
        self.warnings: list[str] = []
        self.page.on("console", self._note)
        tab.run("await ort.boot()")
        worker(self.page).evaluate(INJECTOR)
        cases = {n: [encoded(feed(n)), *(encoded(x) for x in right(n).values())] for n in ROWS}
        tab.run(HELPERS, {"model": encoded(model()), "cases": cases})

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "warning" and "pyruntime" in message.text:
            self.warnings.append(message.text)

    def meet(self, fault: Fault, fallback: bool, then: str) -> Any:
        """The result of `then` after a session has met the fault."""
        self.warnings.clear()
        self.tab.run("await globalThis.session?.release(); globalThis.session = null")
        options = [fallback, 1 if fault.kind in ("slow shader", "hang") else 60]
        create = "session = await create(...arg);"
        if fault.when != "creation":
            before = create + "return [await isRight(session, 64), (await session.explain()).placement]"
            assert self.tab.run(before, options) == [True, {"webgpu": 2}]
        given = [fault.kind, fault.when, fault.times, self.other() if fault.kind == "taken memory" else 0]
        worker(self.page).evaluate("(given) => globalThis.inject(...given)", given)
        try:
            return self.tab.run((create if fault.when == "creation" and fallback else "") + then, options)
        finally:
            worker(self.page).evaluate("globalThis.heal()")

    def other(self) -> int:
        """Bytes that the session of a second page has taken on the GPU."""
        page = self.page.context.new_page()
        page.goto(self.page.url)
        page.evaluate("() => ort.boot()")
        worker(page).evaluate(INJECTOR)
        script = "async ([bytes, x]) => { const model = Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0));" + OTHER
        found: int = page.evaluate(script, [encoded(model()), feed(64).ravel().tolist()])
        return found


@pytest.fixture(scope="module")
def recovering(browser: Browser, servers: dict[str, Server]) -> Iterator[Recovering]:
    tab = new_tab(browser, servers["isolated"])
    yield Recovering(tab)
    tab.page.context.close()


@pytest.mark.parametrize("fault", TABLE, ids=str)
def test_with_fallback(recovering: Recovering, fault: Fault) -> None:
    is_right, found, metrics = recovering.meet(
        fault,
        True,
        """
        const first = await isRight(session, 96);
        const explained = await session.explain();
        return [first && await isRight(session, 32) && await isRight(session, 64), explained, await session.metrics()];
        """,
    )
    moved, texts = found["moved"], recovering.warnings
    assert is_right and len(texts) == (fault.moved != NOTHING), texts
    assert all(fault.reason in move["reason"] and move["to"] == "wasm" for move in moved), moved
    assert all(fault.reason in text and "WebAssembly" in text for text in texts), texts
    is_absent = fault.kind == "gone" and fault.when == "creation"  # the session never was on the GPU
    assert (metrics["recovered"] > 0) is not is_absent
    if fault.moved == SESSION:
        assert [move["node"] for move in moved] == [""] * (not is_absent)
        assert found["placement"].keys() == {"wasm"} and found["providers"]["used"] == ["wasm"]
        assert is_absent or {node["why"] for node in found["nodes"] if node["calls"]} == {moved[0]["reason"]}
    elif fault.moved == NODES:
        assert moved and all(move["node"] in texts[0] for move in moved) and 'MatMul "first"' in moved[0]["node"]
        why = {node["node"]: node["why"] for node in found["nodes"]}
        assert all(why[move["node"]] == move["reason"] for move in moved)
        places = {"wasm"} if fault.kind == "refused shaders" else {"wasm", "webgpu"}
        assert found["placement"].keys() == places
    else:
        assert moved == [] and found["placement"].keys() == {"webgpu"}


@pytest.mark.parametrize("fault", TABLE, ids=str)
def test_without_fallback(recovering: Recovering, fault: Fault) -> None:
    """The typed error; the session is usable once the fault is over."""
    run = "session ??= await create(...arg); return isRight(session, 96)"
    error = recovering.meet(fault, False, f"return (async () => {{ {run} }})().catch((e) => [e.type, e.message]);")
    assert error[0] == fault.error and fault.reason in error[1] and recovering.warnings == []
    again = "session ??= await create(false, 60); return isRight(session, 96).catch(() => isRight(session, 96))"
    assert recovering.tab.run(again)
