"""Files of models that are large: on the disk while a session has them (web/worker/files/model_file.js)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from playwright.sync_api import Route

from e2e.conftest import Profile, Tab
from e2e.test_program_cache import KEPT
from kit import small_models
from kit.chromium import ROOT

WIDTH, LAYERS = 2048, 3  # 48 MB
FOLDER = ROOT / "build" / "models"
X = np.zeros((1, WIDTH), np.float32)
X[0, 0] = 1
CREATE = """
  const given = { file: async (url) => new File([await (await fetch(url)).blob()], 'x.onnx'),
    bytes: async (url) => new Uint8Array(await (await fetch(url)).arrayBuffer()), address: async (url) => url,
    stream: async (url) => (await fetch(url)).body };
  const model = await given[arg.how](arg.url);
  globalThis.session = await ort.InferenceSession.create(model, { executionProviders: ['wasm'], ...arg.options });
"""
RUN = """
  const x = new Float32Array(2048);
  x[0] = 1;
  const { y } = await session.run({ x: new ort.Tensor('float32', x, [1, 2048]) });
  return Array.from(y.data);
"""
LEFT = """
  const root = await navigator.storage.getDirectory();
  const folder = await root.getDirectoryHandle('pyruntime-scratch').catch(() => null);
  const sizes = [];
  for await (const file of folder?.values() ?? []) {
    const found = await file.getFile().catch(() => null); // it was just removed
    if (found) sizes.push(found.size);
  }
  return sizes;
"""
# arg: sizes in MB; bytes of the page move to disk a second after the session is ready
ON_DISK = f"""
  const left = async () => {{ {LEFT} }};
  const sizes = async () => (await left()).map((size) => Math.round(size / 1e6));
  const later = () => new Promise((done) => setTimeout(done, 100));
  for (let i = 0; i < 300 && `${{await sizes()}}` !== `${{arg}}`; i++) await later();
  return sizes();
"""
GONE = f"""
  const left = async () => {{ {LEFT} }};
  for (let i = 0; i < 50 && (await left()).length; i++) await new Promise((done) => setTimeout(done, 100));
  return left();
"""


@pytest.fixture(scope="module")
def expected(built: None, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """large.onnx, and large_outside.onnx with its weights beside it; what they give for X."""
    model = small_models.products(LAYERS, WIDTH)
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((WIDTH, WIDTH), np.float32) / 50 for _ in range(LAYERS)]
    for initializer in model.graph.initializer:
        if initializer.name.startswith("w"):
            initializer.raw_data = weights[int(initializer.name[1:])].tobytes()
    made = tmp_path_factory.mktemp("large")
    onnx.save(model, made / "large.onnx")
    onnx.save(model, made / "large_outside.onnx", save_as_external_data=True, location="large.bin")
    for path in made.iterdir():  # another process of tests may be reading the same
        shutil.move(path, FOLDER / f"{path.name}.{os.getpid()}")
        os.replace(FOLDER / f"{path.name}.{os.getpid()}", FOLDER / path.name)
    y = X
    for weight in weights:
        y = y @ weight
    return y[0].tolist()


def right(tab: Tab, expected: list[float]) -> None:
    np.testing.assert_allclose(tab.run(RUN), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("how", "url", "options", "sizes"),
    [
        ("address", "/models/large.onnx", {}, [50]),
        ("bytes", "/models/large.onnx", {}, [50]),
        ("stream", "/models/large.onnx", {}, [50]),
        ("file", "/models/large.onnx", {}, []),
        ("address", "/models/large_outside.onnx", {"externalData": ["large.bin"]}, [50]),
    ],
)
def test_files_are_on_the_disk_until_the_session_is_released(
    profile: Profile, expected: list[float], how: str, url: str, options: dict[str, Any], sizes: list[int]
) -> None:
    if options:
        options = {"externalData": [{"path": "large.bin", "data": "/models/large.bin"}]}
    for python in (True, False):  # the second page has the Program that the first one compiled
        tab = profile.tab()
        tab.run(CREATE, {"how": how, "url": url, "options": options})
        assert tab.run("return (await ort.stats()).heap > 0") is python
        right(tab, expected)
        assert tab.run(ON_DISK, sizes) == sizes
        right(tab, expected)
        tab.run(KEPT, 1)
        tab.run("await session.release()")
        assert tab.run(GONE) == []
        tab.check()
        tab.page.close()


SHARED = """
  const open = (url, options = {}) => ort.InferenceSession.create(url, { executionProviders: ['wasm'], ...options });
  const bytes = async (url) => new Uint8Array(await (await fetch(url)).arrayBuffer());
  const memory = async () => Math.round((await ort.stats()).arenas / 1e6);
  const x = new Float32Array(2048);
  x[0] = 1;
  const run = async (session) => Array.from((await session.run({ x: new ort.Tensor('float32', x, [1, 2048]) })).y.data);
  const wholes = [];
  const first = await open('/models/large.onnx');
  wholes.push(await memory());
  const others = [await open('/models/large.onnx'), await open(await bytes('/models/large.onnx'))];
  const both = await Promise.all([first, ...others].map(run));
  wholes.push(await memory());
  const apart = await open('/models/large.onnx', { graphOptimizationLevel: 'disabled' });
  const changed = await bytes('/models/large.onnx');
  changed[changed.length - (1 << 23)] ^= 64;
  const another = await open(changed);
  wholes.push(await memory());
  await Promise.all([first, apart, another].map((session) => session.release()));
  const after = await run(others[0]);
  const gone = await run(first).catch((error) => error.name);
  wholes.push(await memory());
  await Promise.all(others.map((session) => session.release()));
  return { wholes, runs: [...both, after], gone, left: await memory() };
"""


def test_sessions_of_one_model_share_it(profile: Profile, expected: list[float]) -> None:
    """By their bytes, wherever those come from; with other options, or one bit less, a model is another one."""
    tab = profile.tab()
    found: Any = tab.run(SHARED)
    one, three, five, last = found["wholes"]
    assert 50 <= one < 75 and three < one + 5 and 2.5 * one < five < 3.2 * one and last < one + 5
    assert found["left"] == 0
    for y in found["runs"]:
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    assert found["gone"] == "SessionFailed"
    assert tab.run(GONE) == []


def test_what_a_page_left_is_swept(profile: Profile, expected: list[float]) -> None:
    first, second = profile.tab(), profile.tab()
    for tab in (first, second):
        tab.run(CREATE, {"how": "address", "url": "/models/large.onnx", "options": {}})
    assert len(second.run(LEFT)) == 2  # type: ignore[arg-type]
    first.page.close()
    third = profile.tab()
    third.run("await ort.InferenceSession.create('/models/affine.onnx')")
    assert len(third.run(LEFT)) == 1  # type: ignore[arg-type]
    right(second, expected)


NO_GPU = "Object.defineProperty(navigator, 'gpu', { value: undefined });"
STORAGES = {
    "none": "navigator.storage.getDirectory = async () => { throw new Error() };",
    "too small": "navigator.storage.estimate = async () => ({ usage: 9, quota: 10 });",
    "full": """let room = 3;
      const { write } = FileSystemSyncAccessHandle.prototype;
      FileSystemSyncAccessHandle.prototype.write = function (bytes, where) {
        if (room-- > 0) return write.call(this, bytes.subarray(0, 1 << 20), where);
        throw new DOMException('full', 'QuotaExceededError');
      };""",
    "full, told as a number": """let room = 3;  // as Chromium does in private windows
      const { write } = FileSystemSyncAccessHandle.prototype;
      FileSystemSyncAccessHandle.prototype.write = function (bytes, where) {
        return room-- > 0 ? write.call(this, bytes.subarray(0, 1 << 20), where) : 2 ** 32 - 8;
      };""",
}


def beginning(code: str, route: Route) -> None:
    """A script that begins with `code`."""
    response = route.fetch()
    route.fulfill(response=response, body=code + response.text())


@pytest.mark.parametrize(
    ("how", "storage"),
    [
        *product(("address", "bytes"), STORAGES),
        *product(("stream",), sorted({*STORAGES} - {"too small"})),  # nobody knows its size
    ],
)
def test_without_room_files_are_in_memory(profile: Profile, expected: list[float], storage: str, how: str) -> None:
    profile.context.route("**/worker.mjs", partial(beginning, STORAGES[storage]))
    tab = profile.tab()
    tab.run(CREATE, {"how": how, "url": "/models/large.onnx", "options": {}})
    right(tab, expected)
    if how == "bytes":
        tab.page.wait_for_timeout(1500)  # when the worker tries to move them
    assert tab.run(GONE) == []
    right(tab, expected)
    tab.check()


def test_a_download_that_breaks_leaves_nothing(tab: Callable[..., Tab], expected: list[float]) -> None:
    made = tab()
    made.page.route("**/large.bin", lambda route: route.abort())
    made.open("/esm.html")
    options = {"externalData": [{"path": "large.bin", "data": "/models/large.bin"}]}
    how = {"how": "address", "url": "/models/large.onnx", "options": options}
    told = made.run(f"return (async () => {{ {CREATE} }})().catch((error) => error.message)", how)
    assert "cannot fetch" in str(told)
    assert made.run(GONE) == []
    made.forgive("ERR_FAILED")


def test_without_a_gpu_the_download_is_removed(tab: Callable[..., Tab], expected: list[float]) -> None:
    made = tab()
    made.page.context.route("**/worker.mjs", partial(beginning, NO_GPU))
    made.open("/esm.html")
    script = """
      return ort.InferenceSession.create('/models/large.onnx', { executionProviders: ['webgpu'] }).catch((e) => e.name);
    """
    assert made.run(script) == "NoAdapter"
    made.run(CREATE, {"how": "address", "url": "/models/affine.onnx", "options": {}})  # later than the download
    made.page.wait_for_timeout(500)
    assert made.run(GONE) == []


def test_released_early_its_program_is_kept(profile: Profile, expected: list[float]) -> None:
    tab = profile.tab()
    tab.run(CREATE, {"how": "address", "url": "/models/large.onnx", "options": {}})
    tab.run("await session.release()")
    assert len(tab.run(KEPT, 1)) == 1  # type: ignore[arg-type]
    assert tab.run(GONE) == []
    tab.check()


def test_a_file_that_changes_is_refused(tab: Callable[..., Tab], expected: list[float], tmp_path: Path) -> None:
    """Of a file that a person has chosen only parts were read."""
    path = tmp_path / "chosen.onnx"
    path.write_bytes((FOLDER / "large.onnx").read_bytes())
    made = tab()
    made.open("/esm.html")
    made.run("document.body.append(Object.assign(document.createElement('input'), { type: 'file' }))")
    made.page.set_input_files("input[type=file]", path)
    made.run("return document.querySelector('input').files[0].size")  # Chromium looks at a file when first asked for it
    with path.open("ab") as file:
        file.write(b"more")
    told = made.run("""
      const [file] = document.querySelector('input[type=file]').files;
      return ort.InferenceSession.create(file).catch((error) => `${error.name}: ${error.message}`);
    """)
    assert "has changed" in str(told)


# arg: a file that comes from the address of another, its last byte late; how: whether the download breaks before it
SLOWLY = """
  const bytes = new Uint8Array(await (await fetch(arg.file)).arrayBuffer());
  const waiting = new Promise((done) => { globalThis.goOn = done; });
  let broken = 0;
  const slowly = async () => new Response(new ReadableStream({
    async start(stream) {
      stream.enqueue(bytes.slice(0, -1));
      await waiting;
      if (arg.how === 'breaks' && !broken++) return stream.error(new TypeError('broken'));
      stream.enqueue(bytes.slice(-1));
      stream.close();
    },
  }), { headers: { 'content-length': bytes.length } });
  const options = { executionProviders: ['wasm'], fetch: slowly };
  globalThis.opening = ort.InferenceSession.create('/models/large.onnx', options);
  opening.catch(() => {});
"""
LOADED = "() => performance.getEntriesByName('pyruntime kernels compiled').length"


@pytest.mark.parametrize("how", ["arrives", "breaks", "is another"])
def test_models_that_were_compiled_before_start_while_they_arrive(
    profile: Profile, expected: list[float], how: str
) -> None:
    """Results are right even if the download begins anew, or if the address has another model of the same size."""
    first = profile.tab()
    first.run(CREATE, {"how": "address", "url": "/models/large.onnx", "options": {}})
    first.run(KEPT, 1)
    first.page.close()
    other = onnx.load(FOLDER / "large.onnx")
    products = [node for node in other.graph.node if node.op_type == "MatMul"]
    names = [node.input[1] for node in reversed(products)]
    for node, name in zip(products, names, strict=True):
        node.input[1] = name
    onnx.save(other, FOLDER / "large_other.onnx")
    assert (FOLDER / "large_other.onnx").stat().st_size == (FOLDER / "large.onnx").stat().st_size
    tab = profile.tab()
    file = "large_other" if how == "is another" else "large"
    tab.run(SLOWLY, {"file": f"/models/{file}.onnx", "how": how})
    while not any(worker.evaluate(LOADED) for worker in tab.page.workers):
        tab.page.wait_for_timeout(20)
    tab.run("goOn(); globalThis.session = await opening")
    if how == "is another":
        weights = {weight.name: numpy_helper.to_array(weight) for weight in other.graph.initializer}
        y = X
        for name in names:
            y = y @ weights[name]
        expected = y[0].tolist()
    right(tab, expected)
    assert tab.run("return (await ort.stats()).heap > 0") is (how == "is another")
    tab.run("await session.release()")
    assert tab.run(GONE) == []
    tab.check()


# the second file, as large as the first, sends a byte and then breaks off for good
BREAKING = """
  let stream;
  const broken = async (url) => {
    if (!url.includes('?other')) return fetch(url);
    if (stream) return new Response(null, { status: 404 });
    const body = new ReadableStream({ start: (made) => { stream = made; made.enqueue(new Uint8Array(1)); } });
    return new Response(body, { headers: { 'content-length': arg.size } });
  };
  globalThis.breakOff = () => stream.error(new Error('broken'));
  globalThis.opening = ort.InferenceSession.create('/models/large.onnx', { ...arg.options, fetch: broken });
  opening.catch(() => {});
"""
STARTED = "() => performance.getEntriesByName('pyruntime constants folded').length"


def test_a_model_that_started_before_a_download_failed_is_freed(profile: Profile, expected: list[float]) -> None:
    external = [{"path": "other.bin", "data": "/models/large.onnx?other"}]
    options = {"executionProviders": ["wasm"], "externalData": external}
    first = profile.tab()
    first.run(CREATE, {"how": "address", "url": "/models/large.onnx", "options": options})
    first.run(KEPT, 1)
    first.page.close()
    tab = profile.tab()
    tab.run(BREAKING, {"size": (FOLDER / "large.onnx").stat().st_size, "options": options})
    while not any(worker.evaluate(STARTED) for worker in tab.page.workers[:1]):  # others may wait, and not answer
        tab.page.wait_for_timeout(20)
    assert "404" in str(tab.run("breakOff(); return opening.catch((error) => error.message)"))
    assert tab.run("return (await ort.stats()).arenas") == 0
    assert tab.run(GONE) == []
    tab.check()
