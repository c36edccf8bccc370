"""The second page opens the Program that the first one compiled: web/worker/programs/program_cache.js."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from playwright.sync_api import Browser, Route

from e2e.conftest import Profile, Server, Tab
from e2e.test_exported import of_python
from e2e.test_loading import Y
from kit import small_models as models
from kit.chromium import ARGS, ROOT, chromium_path

MODELS = ROOT / "build" / "models"
# arg: the model, a path or how to get its bytes; options
RUN = """
  const bytes = async () => new Uint8Array(await (await fetch('/models/affine.onnx')).arrayBuffer());
  const model = arg.model ? await eval(arg.model)() : '/models/affine.onnx';
  const session = await ort.InferenceSession.create(model, arg.options ?? {});
  const x = new ort.Tensor('float32', Float32Array.from([0, 1, 2, 3, 4, 5, 6, 7]), [2, 4]);
  const { y } = await session.run({ x });
  const { heap } = await ort.stats();
  return { y: Array.from(y.data), python: heap > 0, timings: session.timings };
"""
NAMES = "(await (await caches.open('pyruntime-programs')).keys()).map(({ url }) => url)"
KEPT = f"""
  let names = {NAMES};
  for (let i = 0; i < 100 && names.length < arg; i++) {{
    await new Promise((done) => setTimeout(done, 100));
    names = {NAMES};
  }}
  return names;
"""


def visit(profile: Profile, kept: int = 0, model: str = "", check: bool = True, **options: Any) -> bool:
    """A page that runs the model and leaves so many Programs: whether it took Python."""
    tab = profile.tab()
    found = tab.run(RUN, {"model": model, "options": options})
    assert isinstance(found, dict)
    np.testing.assert_allclose(found["y"], Y.ravel(), rtol=1e-5)
    assert found["python"] == bool(of_python(tab))
    assert found["python"] == (found["timings"]["compile"] > 0)
    if kept:
        names = tab.run(KEPT, kept)
        assert isinstance(names, list) and len(names) == kept, names
    tab.page.close()
    if check:
        tab.check()
    return bool(found["python"])


BYTES, BUFFER = "bytes", "async () => (await bytes()).buffer"


@pytest.mark.parametrize(
    ("profile", "model"),
    [("isolated", ""), ("isolated", BYTES), ("isolated", BUFFER), ("plain", BYTES), ("strict", "")],
    indirect=["profile"],
)
def test_second_page_takes_no_python(profile: Profile, model: str) -> None:
    assert visit(profile, 1, model=model)
    assert not visit(profile, 1, model=model)


def test_threads_of_a_kept_program(profile: Profile) -> None:
    assert visit(profile, 1, intraOpNumThreads=2)
    assert not visit(profile, intraOpNumThreads=2)
    assert visit(profile, intraOpNumThreads=1)


OTHERS = {
    "dims": {"freeDimensionOverrides": {"batch": 2}},
    "level": {"graphOptimizationLevel": "disabled"},
    "threads": {"intraOpNumThreads": 3},
}


@pytest.mark.parametrize("options", OTHERS.values(), ids=OTHERS.keys())
def test_other_options_are_compiled(profile: Profile, options: dict[str, Any]) -> None:
    assert visit(profile, 1)
    assert visit(profile, 2, **options)
    assert not visit(profile, **options)
    assert not visit(profile)


def test_another_version_compiles(profile: Profile) -> None:
    assert visit(profile, 1)

    def other(route: Route) -> None:
        """The worker of an engine whose sources have changed; the image of memory takes it for its own."""
        response = route.fetch()
        (build,) = re.findall('"[0-9a-f]{16}"', response.text())
        route.fulfill(response=response, body=response.text().replace(build, f'{build[:9]}00000000"'))

    profile.context.route("**/worker.mjs", other)
    assert visit(profile, 2)
    assert not visit(profile)
    profile.context.unroute("**/worker.mjs")
    assert not visit(profile)


def other_model() -> bytes:
    """As long as affine.onnx, with another bias."""
    model = models.affine()
    (bias,) = [tensor for tensor in model.graph.initializer if tensor.name == "b"]
    bias.raw_data = (models.BIAS + 1).tobytes()
    return model.SerializeToString()


@pytest.mark.parametrize("way", ["'/models/affine.onnx'", "await bytes()"], ids=["address", "bytes"])
def test_another_model_in_its_place_is_compiled(profile: Profile, way: str) -> None:
    """At the same address, and of the same size."""
    changed = other_model()
    assert len(changed) == (MODELS / "affine.onnx").stat().st_size and visit(profile, 1, model=f"async () => {way}")
    serve_as(profile, "affine.onnx", changed)
    for python in (True, False):
        tab = profile.tab()
        found = tab.run(RUN, {"model": f"async () => {way}"})
        assert isinstance(found, dict) and found["python"] == python
        x = np.arange(8, dtype=np.float32).reshape(2, 4)
        y = np.maximum(x @ models.WEIGHT + models.BIAS + 1, 0)
        np.testing.assert_allclose(found["y"], y.ravel(), rtol=1e-5)
        tab.run(KEPT, 2)
        tab.page.close()
        tab.check()
    profile.context.unroute("**/affine.onnx")
    assert not visit(profile, 2, model=f"async () => {way}")


DAMAGED = {
    "nothing": "bytes.subarray(0, 0)",
    "cut off": "bytes.subarray(0, bytes.length - 1)",
    "a bit": "bytes.map((byte, i) => byte ^ (i === bytes.length - 9))",
}
# what holds by its checksums and is of no use
BROKEN = {
    "header": "broken(() => 16)",
    "code": "broken((code) => code)",
    "other": "Uint8Array.from([1, 2, 3])",
}


@pytest.mark.parametrize(
    "sealed, content", [*((False, c) for c in DAMAGED.values()), *((True, c) for c in BROKEN.values())]
)
def test_damaged_programs_are_replaced(profile: Profile, sealed: bool, content: str) -> None:
    assert visit(profile, 1)
    tab = profile.tab()
    tab.run(
        f"""
        const cache = await caches.open('pyruntime-programs');
        const [name] = await cache.keys();
        const found = await cache.match(name);
        const bytes = new Uint8Array(await found.arrayBuffer());
        const {{ crc32 }} = await import('/web/common/crc32.js');
        const broken = (place) => {{
          const start = 4 + new DataView(bytes.buffer).getUint32(0, true); // after the head: the Program
          const view = new DataView(bytes.buffer, start);
          bytes[start + place(16 + view.getUint32(12, true))] ^= 1; // word, format, checksum, length of the header
          view.setUint32(8, crc32(bytes.subarray(start + 16)), true);
          return bytes;
        }};
        const body = {content};
        const {{ seal }} = await import('/web/storage/sealed_cache.js');
        const etag = arg ? await seal(name.url, body) : found.headers.get('etag');
        if (!etag || etag.length !== 64) throw new Error(`its checksum is ${{etag}}`);
        await cache.put(name, new Response(body, {{ headers: {{ etag }} }}));
        """,
        sealed,
    )
    tab.page.close()
    assert visit(profile)
    late(profile)
    assert not visit(profile, 1)


def late(profile: Profile) -> None:
    """A page that stays until what it compiled is kept, in the place of what was deleted."""
    tab = profile.tab()
    tab.run(RUN, {"model": ""})
    assert len(tab.run(KEPT, 1)) == 1  # type: ignore[arg-type]
    tab.page.close()
    tab.check()


def test_off_by_an_option(profile: Profile) -> None:
    off = {"extra": {"session": {"disable_program_cache": "1"}}}
    assert visit(profile, 1)
    assert visit(profile, **off)


def test_deleting_the_cache_empties_it(profile: Profile) -> None:
    assert visit(profile, 1)
    tab = profile.tab()
    assert tab.run("return caches.delete('pyruntime-programs')")
    tab.page.close()
    assert visit(profile)


def test_reports_of_a_kept_program(profile: Profile) -> None:
    """As those of the session that was compiled; in the page, too."""
    ask = """
      const session = await ort.InferenceSession.create('/models/affine.onnx');
      const feeds = { x: new ort.Tensor('float32', new Float32Array(8).fill(1), [2, 4]) };
      await session.run(feeds);
      const { phases, ...explained } = await session.explain();
      const calls = (await session.profile(feeds)).map(({ node, kernel, bytes }) => [node, kernel, bytes]);
      const verified = await session.verify(feeds).catch(({ type, message }) => [type, message]);
      const memory = await session.memory();
      const { inputMetadata, outputMetadata } = session;
      const dims = (await session.run({ x: new ort.Tensor('float32', new Float32Array(20), [5, 4]) })).y.dims;
      let page = 0;
      for (let i = 0; i < 50 && !page; i++) {
        await session.run(feeds);
        page = (await session.memory()).page;
      }
      const y = Array.from((await session.run(feeds)).y.data);
      return { explained, calls, verified, memory, inputMetadata, outputMetadata, dims, page, y };
    """
    told = []
    for _ in range(2):
        tab = profile.tab()
        told.append(tab.run(ask))
        tab.run(KEPT, 1)
        tab.page.close()
    assert not of_python(tab)
    assert told[0] == told[1]


def texts_alone() -> bytes:
    """CastMap to strings, whose Program has nothing to compute."""
    node = helper.make_node("CastMap", ["m"], ["y"], domain="ai.onnx.ml", cast_to="TO_STRING")
    number = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    given = helper.make_value_info("m", helper.make_map_type_proto(onnx.TensorProto.INT64, number))
    y = helper.make_tensor_value_info("y", onnx.TensorProto.STRING, None)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    made = helper.make_graph([node], "g", [given], [y])
    return helper.make_model(made, opset_imports=opsets, ir_version=8).SerializeToString()


def test_maps_and_texts_of_a_kept_program(profile: Profile) -> None:
    """What takes maps and gives strings, as it came: those of the page and of the Program are the same."""
    ask = """
      const feeds = { x: { fig: 1.5, nut: 3 }, m: new Map([[3, 1.25], [1, 2]]) };
      const found = [];
      for (const model of ['/models/mapped.onnx', new Uint8Array(arg)]) {
        const session = await ort.InferenceSession.create(model);
        const mine = Object.fromEntries(session.inputNames.map((name) => [name, feeds[name]]));
        found.push(...Object.values(await session.run(mine)).map(({ data, dims }) => [[...data], dims]));
      }
      return [found, (await ort.stats()).heap > 0];
    """
    told: list[Any] = []
    for _ in range(2):
        tab = profile.tab()
        told.append(tab.run(ask, [*texts_alone()]))
        tab.run(KEPT, 2)
        tab.page.close()
    assert [python for _, python in told] == [True, False]
    assert told[0][0] == told[1][0] and told[0][0][-1] == [["2.000000", "1.250000"], [1, 2]]


def test_python_of_ones_own_is_compiled(profile: Profile) -> None:
    """Operators that a page defines are in no Program of another page, nor left to one."""
    assert visit(profile, 1)
    tab = profile.tab()
    tab.run("return ort.python('1')")
    for name in ("affine", "add"):
        made = "return (await ort.InferenceSession.create(arg)).timings.compile"
        assert tab.run(made, f"/models/{name}.onnx") > 0  # type: ignore[operator]
    tab.run("return new Promise((done) => setTimeout(done, 3000))")
    assert len(tab.run(KEPT, 1)) == 1  # type: ignore[arg-type]


HOST = """<ir_version: 10, opset_import: ["" : 20]>
  g (string[N] x) => (bool[N] y) { y = RegexFullMatch <pattern = "a+"> (x) }"""
VALUES = """<ir_version: 10, opset_import: ["" : 20]>
  g (float[N] x, int64[K] s) => (y) { y = Reshape (x, s) }"""


def big() -> onnx.ModelProto:
    """Five MB of weights that are no raw bytes, so that the Program holds them."""
    values = np.arange(5 * 2**18, dtype=np.float32)
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, values.shape, values.tolist())
    x, y = [(name, onnx.TensorProto.FLOAT, [len(values)]) for name in "xy"]
    made = models.model([onnx.helper.make_node("Add", ["x", "w"], ["y"])], [x], [y])
    made.graph.initializer.append(weight)
    return made


def serve_as(profile: Profile, name: str, body: bytes) -> None:
    profile.context.route(f"**/{name}", lambda route: route.fulfill(body=body))


def test_what_is_not_kept(profile: Profile) -> None:
    """What needs Python, a model in shared memory, a large Program."""
    texts = {"host": onnx.parser.parse_model(HOST), "big": big()}
    for name, model in texts.items():
        serve_as(profile, f"{name}.onnx", model.SerializeToString())
    tab = profile.tab()
    tab.run("""
      for (const name of ['host', 'big']) await ort.InferenceSession.create(`/models/${name}.onnx`);
      const bytes = new Uint8Array(await (await fetch('/models/add.onnx')).arrayBuffer());
      const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
      shared.set(bytes);
      await ort.InferenceSession.create(shared);
      await new Promise((done) => setTimeout(done, 3000));
      await ort.InferenceSession.create('/models/types.onnx');
    """)
    assert len(tab.run(KEPT, 1)) == 1  # type: ignore[arg-type]
    tab.check()


# arg: shapes to run with; what they give, and whether it took Python
RESHAPE = """
  const session = await ort.InferenceSession.create('/models/values.onnx');
  const x = new ort.Tensor('float32', Float32Array.from([0, 1, 2, 3, 4, 5]), [6]);
  const dims = [];
  for (const s of arg) {
    const { y } = await session.run({ x, s: new ort.Tensor('int64', s, [s.length]) });
    dims.push([...y.dims]);
    if (y.data.join() !== '0,1,2,3,4,5') throw new Error(`got ${y.data}`);
  }
  return [dims, (await ort.stats()).heap > 0];
"""


def test_programs_for_values(profile: Profile) -> None:
    """One for each shape that was asked for; a new one is compiled, and kept beside the others."""
    serve_as(profile, "values.onnx", onnx.parser.parse_model(VALUES).SerializeToString())
    for shapes, python in (([[2, 3]], True), ([[2, 3], [1, 6, 1]], True), ([[1, 6, 1], [2, 3]], False)):
        tab = profile.tab()
        assert tab.run(RESHAPE, shapes) == [shapes, python]
        tab.run("return new Promise((done) => setTimeout(done, 2500))")  # the second page changes an entry
        assert len(tab.run(KEPT, 1)) == 1  # type: ignore[arg-type]
        tab.page.close()
        tab.check()


def test_models_with_external_data(profile: Profile) -> None:
    """A Program depends on the bytes that the compiler has read. It only locates weights, so others need no Python."""
    external = "async () => '/models/external.onnx'"
    assert visit(profile, 1, model=external, externalData=["external.bin"])
    assert not visit(profile, model=external, externalData=["external.bin"])
    weights = bytearray((MODELS / "external.bin").read_bytes())
    serve_as(profile, "external.bin", bytes([*weights[:-4], 0, 0, 0, 0]))
    tab = profile.tab()
    found = tab.run(RUN, {"model": external, "options": {"externalData": ["external.bin"]}})
    assert isinstance(found, dict) and not found["python"]
    assert not np.allclose(found["y"], Y.ravel())
    serve_as(profile, "external.bin", bytes(weights) + b"more")
    assert visit(profile, model=external, externalData=["external.bin"])  # sizes count


# arg: options; what digits say of a blank, whether it took Python, and the places of the nodes
ON_GPU = """
  if (arg.own) {
    const adapter = await navigator.gpu.requestAdapter();
    arg.options.executionProviders = [{ name: 'webgpu', device: await adapter.requestDevice() }];
  }
  const session = await ort.InferenceSession.create('/demo/digits/digits.onnx', arg.options);
  const feeds = { image: new ort.Tensor('float32', new Float32Array(784), [1, 1, 28, 28]) };
  const { probabilities } = await session.run(feeds);
  const python = (await ort.stats()).heap > 0;
  const { placement } = await session.explain();
  const verified = arg.verify ? await session.verify(feeds) : { ok: true };
  return { data: [...probabilities.data], python, placement, ok: verified.ok };
"""


@pytest.mark.parametrize("own", [False, True], ids=["worker", "page"])
def test_programs_for_the_gpu(profile: Profile, own: bool) -> None:
    """In the worker, and on a device of the page; what needs Python after all starts it."""
    told = []
    for verify in (False, False, True):
        tab = profile.tab()
        found = tab.run(ON_GPU, {"own": own, "verify": verify, "options": {"executionProviders": ["webgpu"]}})
        assert isinstance(found, dict) and found["ok"] and found["placement"]["webgpu"] > 0
        told.append(found)
        assert len(tab.run(KEPT, 1)) == 1  # type: ignore[arg-type]
        tab.page.close()
        tab.check()
    assert [found["python"] for found in told] == [True, False, False]
    np.testing.assert_allclose(told[1]["data"], told[0]["data"], rtol=1e-6)


def test_no_more_than_sixteen(profile: Profile) -> None:
    """The oldest go."""
    tab = profile.tab()
    tab.run("""
      const cache = await caches.open('pyruntime-programs');
      for (let i = 0; i < 20; i++) await cache.put(`/old?${i}`, new Response('old'));
    """)
    tab.run(RUN, {"model": ""})
    names = tab.run(f"""
      for (let i = 0; i < 100 && {NAMES}.some((name) => name.endsWith('old?4')); i++) {{
        await new Promise((done) => setTimeout(done, 100));
      }}
      return {NAMES};
    """)
    assert isinstance(names, list) and len(names) == 16
    assert [name.partition("?")[2] for name in names[:-1]] == [str(i) for i in range(5, 20)]
    tab.page.close()
    assert not visit(profile)


@pytest.mark.parametrize("room", [1, 1 << 20])
def test_no_room(profile: Profile, room: int) -> None:
    """For anything; for a small Program. Neither page is told."""
    tab = profile.tab()
    devtools = profile.context.new_cdp_session(tab.page)
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": tab.origin, "quotaSize": room})
    for page in (tab, profile.tab()):
        found = page.run(RUN, {"model": ""})
        assert isinstance(found, dict)
        np.testing.assert_allclose(found["y"], Y.ravel(), rtol=1e-5)
        page.run("return new Promise((done) => setTimeout(done, 3000))")
        assert len(page.run(KEPT, 0)) <= (room > 1)  # type: ignore[arg-type]
        page.check()


def test_storage_denied(profile: Profile) -> None:
    deny = "CacheStorage.prototype.open = async () => { throw new DOMException('denied', 'SecurityError'); };\n"
    assert visit(profile, 1)

    def denied(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=deny + response.text())

    profile.context.route("**/worker.mjs", denied)
    assert visit(profile)


def test_a_page_without_a_secure_context(browser: Browser, servers: dict[str, Server]) -> None:
    """It has neither Cache Storage nor crypto.subtle."""
    with browser.browser_type.launch(
        executable_path=chromium_path(), args=[*ARGS, "--host-resolver-rules=MAP insecure.test localhost"]
    ) as other:
        for _ in range(2):
            page = other.new_page()
            tab = Tab(page, servers["plain"].url.replace("localhost", "insecure.test"))
            tab.open("/esm.html")
            assert tab.run("return !globalThis.caches && !crypto.subtle")
            found = tab.run(RUN, {"model": ""})
            assert isinstance(found, dict) and found["python"]
            np.testing.assert_allclose(found["y"], Y.ravel(), rtol=1e-5)
            tab.check()
