"""Short programs run in the page: no message goes to the worker, and everything else is as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.conftest import Tab

pytestmark = pytest.mark.alone  # sessions move to the page if their runs take few milliseconds

OPEN = """
  const messages = [];
  const { postMessage } = Worker.prototype;
  Worker.prototype.postMessage = function (message, ...rest) {
    if (message.call) messages.push(message.call);
    return postMessage.call(this, message, ...rest);
  };
  const session = await ort.InferenceSession.create('/models/affine.onnx', { executionProviders: ['wasm'] });
  const sines = (count) => Float32Array.from({ length: count }, (_, i) => Math.sin(i));
  const x = (rows) => new ort.Tensor('float32', sines(4 * rows), [rows, 4]);
  const sent = async (action) => {
    messages.length = 0;
    const value = await action();
    return [messages.join(), value];
  };
  const first = await session.run({ x: x(2) });
  const settle = async (rows = 2) => { // until runs of so many rows send nothing, or two seconds
    for (const end = performance.now() + 2000; performance.now() < end;) {
      const [calls] = await sent(() => session.run({ x: x(rows) }));
      if (!calls) return true;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return false;
  };
"""


def test_a_short_program_moves_to_the_page(page: Tab) -> None:
    found: Any = page.run(
        OPEN
        + """
  const moved = await settle();
  const [calls, last] = await sent(() => session.run({ x: x(2) }));
  const { page } = await session.memory();
  return { moved, calls, first: [...first.y.data], last: [...last.y.data], dims: last.y.dims, type: last.y.type, page };
"""
    )
    assert found["moved"]
    assert found["calls"] == ""
    assert found["last"] == found["first"]
    assert (found["dims"], found["type"]) == ([2, 3], "float32")
    assert found["page"] >= 65536


def test_much_larger_feeds_are_tried_in_the_worker_first(page: Tab) -> None:
    calls: Any = page.run(
        OPEN
        + """
  await settle();
  const found = [(await sent(() => session.run({ x: x(4) })))[0], (await sent(() => session.run({ x: x(64) })))[0]];
  const [, { y }] = await sent(() => session.run({ x: x(64) }));
  return [...found, y.dims.join()];
"""
    )
    assert calls == ["", "run", "64,3"]


def test_outputs_fill_the_given_tensor(page: Tab) -> None:
    found: Any = page.run(
        OPEN
        + """
  await settle();
  const y = new ort.Tensor('float32', new Float32Array(6), [2, 3]);
  const [calls, results] = await sent(() => session.run({ x: x(2) }, { y }));
  return [calls, results.y === y, y.data.join() === first.y.data.join()];
"""
    )
    assert found == ["", True, True]


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_bad_feeds_are_refused_and_the_session_goes_on(kind: str, tab: Callable[..., Tab]) -> None:
    page = tab(kind)
    page.open("/esm.html")
    found: Any = page.run(
        OPEN
        + """
  await settle();
  const bad = new ort.Tensor('float32', new Float32Array(10), [2, 5]);
  const name = await session.run({ x: bad }).then(() => '', (error) => error.name);
  const [calls, { y }] = await sent(() => session.run({ x: x(2) }));
  await session.release();
  const after = await session.run({ x: x(2) }).then(() => '', (error) => error.name);
  return [name, calls, y.data.join() === first.y.data.join(), after];
"""
    )
    assert found == ["InvalidInput", "", True, "SessionFailed"]


def test_a_page_may_ask_for_the_worker(page: Tab) -> None:
    found: Any = page.run(
        "ort.env.wasm.proxy = true; try {" + OPEN + "return await settle(); } finally { ort.env.wasm.proxy = false; }"
    )
    assert found is False


def test_long_programs_stay_in_the_worker(page: Tab) -> None:
    big = OPEN.replace("affine", "product").replace("4 * rows", "768 * rows").replace("[rows, 4]", "[rows, 768]")
    found: Any = page.run(big.replace("x(2)", "x(768)") + "return settle(768);")
    assert found is False
