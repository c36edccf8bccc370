"""session.tune: schedules measured in the page's worker, and sessions made as was chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from e2e.conftest import Profile, Tab
from kit import zoo
from kit.gpu import GPU_IN_PAGES
from kit.models import assert_close

RNG = np.random.default_rng(98)
LAYERS = """<ir_version: 9, opset_import: ["" : 18]> g (float[1, 16, 64, 64] x) => (y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)  r = Relu (a)  y = Conv <pads = [1, 1, 1, 1]> (r, v) }"""
X = RNG.standard_normal((1, 16, 64, 64)).astype(np.float32)

# arg: model, x, options of create
TUNED = """
  const model = Uint8Array.from(arg.model);
  const session = await ort.InferenceSession.create(model, arg.options);
  const x = new ort.Tensor('float32', Float32Array.from(arg.x), [1, 16, 64, 64]);
  const tuned = await session.tune({ x }, { seconds: 0.2 });
  const before = await session.run({ x });
  await session.release();
  const again = await ort.InferenceSession.create(model, { ...arg.options, choices: tuned.choices });
  const after = await again.run({ x });
  await again.release();
  return { tuned, before: Array.from(before.y.data), after: Array.from(after.y.data) };
"""


def model() -> bytes:
    made = onnx.parser.parse_model(LAYERS)
    for name, filters in (("w", 16), ("v", 8)):
        value = (RNG.standard_normal((filters, 16, 3, 3)) / 12).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return made.SerializeToString()


def given(data: bytes, **options: Any) -> dict[str, Any]:
    return {"model": list(data), "x": X.ravel().tolist(), "options": options}


def check(found: Any, data: bytes) -> dict[str, Any]:
    (want,) = zoo.oracle(data, {"x": X})
    for y in (found["before"], found["after"]):
        assert_close([want], [np.array(y, np.float32).reshape(want.shape)], 1e-4)
    tuned: dict[str, Any] = found["tuned"]
    assert 0 < tuned["after"] <= tuned["before"] and tuned["took"] > 0
    return tuned


@pytest.mark.parametrize("threads", [1, 2])
def test_tuning_on_webassembly(page: Tab, threads: int) -> None:
    data = model()
    tuned = check(page.run(TUNED, given(data, intraOpNumThreads=threads)), data)
    assert set(tuned["choices"]) <= {"winograd_tiles"}
    assert all(len(k["nodes"]) and k["before"] > k["after"] for k in tuned["kernels"])


def test_tuning_on_the_gpu(page: Tab) -> None:
    data = model()
    tuned = check(page.run(TUNED, given(data, executionProviders=[GPU_IN_PAGES, "wasm"])), data)
    assert set(tuned["choices"]) <= {"contraction", "attention"}


REFUSED = """
  const error = (promise) => promise.then(() => 'made', (e) => `${e.type}: ${e.message}`);
  const create = (choices) => error(ort.InferenceSession.create(Uint8Array.from(arg.model), { choices }));
  const session = await ort.InferenceSession.create(Uint8Array.from(arg.model));
  const x = new ort.Tensor('float32', new Float32Array(16 * 64 * 64), [1, 16, 64, 64]);
  return [
    await create({ tiles: {} }), await create({ winograd_tiles: { '': 7 } }), await create('32'),
    await error(session.tune({ x }, { seconds: Infinity })), await error(session.tune({})),
  ];
"""


def test_what_is_refused(page: Tab) -> None:
    found = page.run(REFUSED, given(model()))
    assert isinstance(found, list)
    wanted = [
        "there is no tuning knob 'tiles'",
        "winograd_tiles cannot be 7",
        "choices cannot be '32'",
        "seconds cannot be",
        "x",
    ]
    for text, want in zip(found, wanted, strict=True):
        assert text.startswith("InvalidInput: ") and want in text, text


KEPT = """
  const session = await ort.InferenceSession.create(Uint8Array.from(arg.model), arg.options);
  const x = new ort.Tensor('float32', Float32Array.from(arg.x), [1, 16, 64, 64]);
  const { y } = await session.run({ x });
  const { heap } = await ort.stats();
  for (let i = 0; heap && i < 100; i++) {
    if ((await (await caches.open('pyruntime-programs')).keys()).length >= arg.kept) break;
    await new Promise((done) => setTimeout(done, 100));
  }
  const tuned = arg.tune && await session.tune({ x }, { seconds: 0 });
  return { python: heap > 0, took: tuned?.took };
"""


def test_programs_are_kept_by_their_choices(profile: Profile) -> None:
    """Each has an entry of its own; one that was kept starts Python to be tuned."""
    data, choices = model(), {"winograd_tiles": {"": 128}}
    visits = [({}, 1, False), ({"choices": choices}, 2, False), ({"choices": choices}, 2, False), ({}, 2, True)]
    found = []
    for options, kept, tune in visits:
        tab = profile.tab()
        found.append(tab.run(KEPT, {**given(data, **options), "kept": kept, "tune": tune}))
        tab.page.close()
    assert [f["python"] for f in found] == [True, True, False, False]  # type: ignore[index]
    assert found[-1]["took"] > 0  # type: ignore[index, call-overload]
