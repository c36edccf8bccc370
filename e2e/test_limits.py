"""Limits of memory and of compiling in a page, and memory that is given back."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import onnx
import pytest

from e2e.conftest import Tab

MIB = 1 << 20
ROWS = "g (float[n, n] x) => (float[n, n] y) { a = Softmax (x)  y = Softmax <axis = 0> (a) }"
TOOLS = """
  ort.env.wasm.proxy = true;
  const { Tensor, InferenceSession } = ort;
  const open = (options) => InferenceSession.create(Uint8Array.from(atob(arg.model), (c) => c.charCodeAt(0)), options);
  const zeros = (...dims) => ({ x: new Tensor('float32', new Float32Array(dims.reduce((a, b) => a * b, 1)), dims) });
  const told = (promise) => promise.then(() => null, (error) => [error.name, error.message]);
  const arenas = async () => (await ort.stats()).arenas;
"""


def encoded(model: onnx.ModelProto) -> str:
    return base64.b64encode(model.SerializeToString()).decode()


def rows() -> str:
    return encoded(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {ROWS}'))


def by_rank() -> str:
    """A model that is compiled once for each rank of its input."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["y"])], "g", [x], [y])
    return encoded(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10))


MEMORY = """
  const session = await open({ memoryLimit: arg.limit });
  for (let k = 0; k < 20; k++) await session.run(zeros(4, 4)); // never moves to the page
  const refused = await told(session.run(zeros(3000, 3000)));
  const after = await session.run(zeros(4, 4));
  const { arena, page } = await session.memory();
  await session.release();
  return { refused, value: after.y.data[5], arena, page };
"""


def test_a_memory_limit(page: Tab) -> None:
    found: Any = page.run(TOOLS + MEMORY, {"model": rows(), "limit": 16 * MIB})
    name, message = found["refused"]
    assert (
        name == "OutOfMemory" and f"bytes of memory are needed, memoryLimit is {16 * MIB} (raise memoryLimit" in message
    )
    assert found["value"] == pytest.approx(0.25)
    assert found["arena"] <= 16 * MIB and found["page"] == 0


OTHERS = """
  const session = await open({ memoryLimit: arg.limit });
  const held = [], sizes = [];
  for (const rank of [1, 2, 3, 2, 1]) {
    const { y } = await session.run(zeros(arg.limit / 16, ...Array(rank - 1).fill(1)));
    sizes.push(y.size);
    held.push(await arenas());
  }
  const refused = await told(session.run(zeros(arg.limit / 4)));
  const again = (await session.run(zeros(4))).y.data[0];
  await session.release();
  return { sizes, held, refused, again, end: await arenas() };
"""


def test_a_full_memory_first_frees_what_other_feeds_need(page: Tab) -> None:
    before = page.run("return (await ort.stats()).arenas")
    found: Any = page.run(TOOLS + OTHERS, {"model": by_rank(), "limit": 32 * MIB})
    assert found["sizes"] == [2 * MIB] * 5
    assert max(found["held"]) <= 32 * MIB + before  # type: ignore[operator]
    assert found["refused"][0] == "OutOfMemory"
    assert found["again"] == pytest.approx(0.25) and found["end"] <= before  # type: ignore[operator]  # earlier tests dropped some


TRIM = """
  const session = await open({ intraOpNumThreads: arg.threads });
  const small = zeros(4, 4);
  await session.run(small);
  const before = await arenas();
  await session.run(zeros(2000, 2000));
  const grown = await arenas();
  await Promise.all([session.run(small), session.trim(), session.run(small)]);
  const trimmed = await arenas();
  const { y } = await session.run(small);
  const { teams } = await ort.stats();
  await session.release();
  return { before, grown, trimmed, value: y.data[3], teams };
"""


@pytest.mark.parametrize(("kind", "threads"), [("isolated", 1), ("isolated", 2), ("plain", 1)])
def test_trim(kind: str, threads: int, tab: Callable[..., Tab]) -> None:
    page = tab(kind)
    page.open("/esm.html")
    found: Any = page.run(TOOLS + TRIM, {"model": rows(), "threads": threads})
    print(f"{kind}, {threads} threads: {found['before']} bytes, {found['grown']}, {found['trimmed']} after trim()")
    assert found["grown"] > found["before"] + 15 * MIB  # softmax overwrites its 16 MB
    assert found["trimmed"] == found["before"]
    assert found["value"] == pytest.approx(0.25)
    assert found["teams"] == threads - 1


COMPILE = """
  const found = [];
  const extra = { session: { disable_program_cache: '1' } };
  for (const options of arg.options) {
    const error = await told(open({ ...options, extra }).then((session) => session.release()));
    found.push(error ? error.join(': ') : 'opened');
  }
  return found;
"""


def test_limits_of_compiling(page: Tab) -> None:
    refused = [{"compileTimeLimit": 1e-4}, {"codeSizeLimit": 100}]
    wrong = [{"compileTimeLimit": 0}, {"codeSizeLimit": "much"}, {"memoryLimit": -1}]
    options = [*refused, *wrong, {"compileTimeLimit": 60, "codeSizeLimit": MIB}]
    found: Any = page.run(TOOLS + COMPILE, {"model": rows(), "options": options})
    starts = [
        'LimitExceeded: Softmax "',
        'LimitExceeded: Softmax "',
        "InvalidInput: compileTimeLimit cannot be 0 (a number of seconds)",
        "InvalidInput: codeSizeLimit cannot be 'much' (a number of bytes)",
        "InvalidInput: memoryLimit cannot be -1 (a number of bytes)",
        "opened",
    ]
    for text, start in zip(found, starts, strict=True):
        assert text.startswith(start), text
