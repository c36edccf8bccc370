"""Each fault of kit/faults.py in the worker of a page: the result is right, on the next provider if the GPU cannot give
it, and the session says so once."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page

from e2e.conftest import Server, Tab, new_tab
from e2e.test_webgpu_faults import worker
from kit.faults import ABSENT, NODES, NOTHING, SESSION, TABLE, WAITING, Fault, feed, model, right

ROWS = (32, 64, 96)

INJECTOR = f"(() => {{{Path(__file__).with_name('pages').joinpath('gpu_faults.js').read_text()}}})()"

# In the page
HELPERS = """
  const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  globalThis.model = decode(arg.model);
  const base = { executionProviders: ['webgpu', 'wasm'], extra: { session: { disable_program_cache: '1' } } };
  globalThis.create = (fallback, gpuTimeout, preferredOutputLocation) => (
    ort.InferenceSession.create(model, { ...base, fallback, gpuTimeout, preferredOutputLocation }));
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
        options = [fallback, 4 if fault.kind in WAITING else 60]
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
    is_absent = fault.kind in ABSENT and fault.when == "creation"  # the session never was on the GPU
    assert (metrics["recovered"] > 0) is not is_absent
    if fault.moved == SESSION:
        assert [move["node"] for move in moved] == [""] * (not is_absent)
        assert found["placement"].keys() == {"wasm"} and found["providers"]["used"] == ["wasm"]
        assert is_absent or {node["why"] for node in found["nodes"] if node["calls"]} == {moved[0]["reason"]}
    elif fault.moved == NODES:
        assert moved and all(move["node"] in texts[0] for move in moved) and 'MatMul "first"' in moved[0]["node"]
        why = {node["node"]: node["why"] for node in found["nodes"]}
        assert all(why[move["node"]] == move["reason"] for move in moved)
        is_one = fault.kind == "refused shader"  # a busy machine may compile a second one too slowly
        assert found["placement"].keys() == ({"wasm", "webgpu"} if is_one else {"wasm"}) or fault.kind == "slow shader"
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


IN_PLACE = """
  const device = await ort.env.webgpu.device;
  const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const buffer = device.createBuffer({ size: 64 * 512, usage: STORAGE | COPY_SRC | COPY_DST });
  const [x, y, e] = arg.map((text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer));
  const fill = () => device.queue.writeBuffer(buffer, 0, x);
  const read = async () => {
    const staging = device.createBuffer({ size: 64 * 512, usage: MAP_READ | COPY_DST });
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, 64 * 512);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    return new Float32Array(staging.getMappedRange());
  };
  const isNear = (found, right) => found.every((v, i) => Math.abs(v - right[i]) <= 1e-3 * Math.abs(right[i]));
  const tensor = ort.Tensor.fromGpuBuffer(buffer, { dataType: 'float32', dims: [64, 128] });
  const run = async () => {
    fill();
    const results = await session.run({ x: tensor }, { y: tensor, e: null });
    const { location } = results.e;
    return [isNear(await read(), y), isNear(await results.e.getData(), e), location];
  };
"""


def test_a_run_in_place_is_not_applied_twice(tab: Callable[..., Tab]) -> None:
    """The buffer of the page is feed and output. The GPU has done the work when it says that it has no memory."""
    made = tab()
    page = made.open("/esm.html")
    page.evaluate(INJECTOR)
    made.run(HELPERS, {"model": encoded(model()), "cases": {}})
    made.run("globalThis.session = await create(true, 60, 'gpu-buffer')")
    given = [encoded(feed(64)), *(encoded(x) for x in right(64).values())]
    assert made.run(IN_PLACE + "return run()", given) == [True, True, "gpu-buffer"]
    found: Any = made.run(
        IN_PLACE
        + """
        await inject('full after work', 'run', 1);
        const again = await run();
        const { placement } = await session.explain();
        await inject('full after work', 'run', 3); // the run, the restored buffer, the run again
        const moved = await run();
        heal();
        return [again, placement, moved, await run(), Object.keys((await session.explain()).placement)];
        """,
        given,
    )
    assert found[:2] == [[True, True, "gpu-buffer"], {"webgpu": 2}]
    assert found[2:] == [[True, True, "cpu"]] * 2 + [["wasm"]]
