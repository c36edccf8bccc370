"""What surrounds the package: frameworks that wrap its objects or replace `fetch`, frames, policies, and hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Browser, Route

from e2e.conftest import Tab
from kit import small_models as models
from kit.chromium import serve
from pyruntime.cli.serve import Server

ADD = """
  const session = await ort.InferenceSession.create(arg ?? '/models/add.onnx');
  const tensor = (...data) => new ort.Tensor('float32', data, [2, 3]);
  const { c } = await session.run({ a: tensor(1, 2, 3, 4, 5, 6), b: tensor(1, 1, 1, 1, 1, 1) });
  return c.data.join();
"""
RIGHT = "2,3,4,5,6,7"
# Proxies at each level of objects and arrays, as Vue makes them
REACTIVE = """
  const reactive = (value) => (['Object', 'Array'].includes(Object.prototype.toString.call(value).slice(8, -1))
    ? new Proxy(value, { get: (...how) => reactive(Reflect.get(...how)) }) : value);
"""


def test_options_sessions_and_tensors_in_reactive_state(page: Tab) -> None:
    """A wrong option beside them fails alone."""
    rows = (TensorProto.FLOAT, [1, 1, "n", 4])
    join = helper.make_node("Concat", ["past", "new"], ["present"], axis=2)
    model = models.model([join], [("past", *rows), ("new", TensorProto.FLOAT, [1, 1, 1, 4])], [("present", *rows)])
    found = page.run(f"""{REACTIVE}
      const create = (options) => ort.InferenceSession.create('/models/affine.onnx', reactive(options))
        .then((session) => session.inputNames.join(), (error) => error.name);
      const made = await Promise.all([
        create({{ executionProviders: [{{ name: 'wasm' }}], extra: {{ session: {{}} }}, logId: 'x' }}), create({{}}),
        create({{ freeDimensionOverrides: {{ batch: 2 }}, preferredOutputLocation: {{ y: 'cpu' }} }}),
        create({{ freeDimensionOverrides: {{ batch: -1 }} }}),
      ]);
      const state = reactive({{ session: await ort.InferenceSession.create(Uint8Array.from(arg)) }});
      const rows = new ort.Tensor('float32', [1, 2, 3, 4], [1, 1, 1, 4]);
      let past = rows;
      for (let i = 0; i < 3; i++) past = reactive(await state.session.run(reactive({{ past, new: rows }}))).present;
      await Promise.all([state.session.explain(), state.session.memory(), state.session.trim()]);
      await state.session.release();
      return [made, past.dims.join(), past.data.join('')];
    """, list(model.SerializeToString()))  # fmt: skip
    assert found == [["x", "x", "x", "InvalidInput"], "1,1,4,4", "1234" * 4]


def test_models_of_another_frame(page: Tab) -> None:
    found = page.run("""
      const frame = document.createElement('iframe');
      document.body.append(frame);
      const there = frame.contentWindow;
      const bytes = await (await fetch('/models/add.onnx')).arrayBuffer();
      const array = new there.Uint8Array(bytes.byteLength);
      array.set(new Uint8Array(bytes));
      const url = new there.URL('/models/add.onnx', location.href);
      const models = [array, array.buffer, new there.Blob([bytes]), url, await there.fetch(url.href)];
      const made = await Promise.all(models.map((model) => ort.InferenceSession.create(model)));
      frame.remove();
      return made.map((session) => session.inputNames.join());
    """)  # fmt: skip
    assert found == ["a,b"] * 5


def test_the_fetch_of_the_page(page: Tab) -> None:
    """Models and their external data come through it, and through the option; both may answer by themselves."""
    found = page.run("""
      const real = fetch;
      const seen = [];
      globalThis.fetch = (url, init) => {
        if (url.includes('/virtual/')) seen.push([url.split('/').pop(), init.headers?.range ?? '']);
        return real(url.replace('/virtual/', '/models/'), init);
      };
      const create = (model, options) => ort.InferenceSession.create(model, options)
        .then((session) => session.outputNames.join(), (error) => error.message);
      const inspected = await ort.inspect('/virtual/external.onnx');
      const made = [await create('/virtual/external.onnx'), await create('/virtual/nothing.onnx')];
      globalThis.fetch = real;
      const own = async () => ({ ok: true, arrayBuffer: async () => (await real('/models/add.onnx')).arrayBuffer() });
      const given = await create('/virtual/add.onnx', { fetch: own });
      const failing = await create('/virtual/add.onnx', { fetch: () => { throw new Error('no token'); } });
      return { made, given, failing, seen, size: inspected.size };
    """)  # fmt: skip
    assert isinstance(found, dict)
    assert found["made"][0] == "y" and "nothing.onnx: HTTP 404" in found["made"][1]
    assert found["given"] == "c,d" and "/virtual/add.onnx: no token" in found["failing"]
    assert found["seen"][0] == ["external.onnx", "bytes=0-4095"] and found["size"] > 0
    assert {name for name, range in found["seen"] if not range} == {"external.onnx", "external.bin", "nothing.onnx"}
    page.forgive("404")


# ── pages that hosts make ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def trusting(built: None) -> Iterator[Server]:
    """Every file says that scripts' addresses must be trusted, also those of the worker."""
    policy = "require-trusted-types-for 'script'; trusted-types pyruntime"
    with serve(headers={"Content-Security-Policy": policy}) as server:
        yield server


def html(body: str) -> Callable[[Route], None]:
    text = f"<!doctype html><link rel=icon href='data:,'>{body}<body></body>"
    return lambda route: route.fulfill(content_type="text/html", body=text)


def test_trusted_types(browser: Browser, trusting: Server) -> None:
    """With threads, which the worker starts."""
    page = browser.new_context().new_page()
    page.goto(f"{trusting.url}/script.html")
    run = f"async (arg) => {{ ort.env.wasm.numThreads = 2; {ADD} }}"
    assert page.evaluate(run) == RIGHT
    assert page.evaluate("ort.stats().then(({ threads }) => threads)") == 1
    page.context.close()


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_script_tags_twice_and_a_base(tab: Callable[..., Tab], kind: str) -> None:
    """Deep in a single-page application, whose host answers index.html for files that it lacks. The second script is
    another version: it takes its own files."""
    made = tab(kind)
    asked: list[str] = []
    scripts = "<base href='/'><script src='dist/ort.js'></script><script src='other/ort.js'></script>"
    made.page.context.route("**/deep/route", html(scripts))
    made.page.context.route("**/elsewhere/**", html("index"))
    made.page.context.route("**/other/**", lambda route: route.fallback(url=route.request.url.replace("other", "dist")))
    made.page.on("console", lambda message: asked.append(message.text))
    made.open("/deep/route")
    assert made.run(f"ort.env.wasm.wasmPaths = './elsewhere/'; {ADD}") == RIGHT
    assert any("/other/worker.mjs" in url for url in made.requests) and not any(
        "/dist/w" in url for url in made.requests
    )
    (warning,) = asked
    assert "env.wasm.wasmPaths names ./elsewhere/, not this package's files: using " in warning
    made.run("ort.shutdown(); ort.env.wasm.wasmPaths = './dist/';")
    assert made.run(ADD) == RIGHT and any(url.endswith("/dist/worker.mjs") for url in made.requests)
    assert len(asked) == 1


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_shared_workers_and_workers_from_blobs(tab: Callable[..., Tab], kind: str) -> None:
    """Chromium's shared workers have no Worker: the engine runs in their own thread. In a worker from a blob: relative
    addresses have no meaning, except those of the engine's files."""
    made = tab(kind)
    made.open("/esm.html")
    found: Any = made.run(f"""
      const body = `const answer = async (arg) => {{ {ADD} }};
        const told = (arg) => answer(arg).catch((error) => error.name + ' ' + error.message);`;
      const script = (...text) => URL.createObjectURL(new Blob(text, {{ type: 'text/javascript' }}));
      const module = `import * as ort from '${{origin}}/dist/ort.mjs';`;
      const from = {{ module, classic: `importScripts('${{origin}}/dist/ort.js');` }};
      const messages = 'onmessage = async (event) => postMessage(await told(event.data));';
      const ports = 'onconnect = ({{ ports: [port] }}) => {{'
        + 'port.onmessage = async (event) => port.postMessage(await told(event.data)); }};';
      const ask = (port, arg) => new Promise((resolve) => {{
        port.onmessage = ({{ data }}) => resolve(data);
        port.postMessage(arg);
      }});
      const model = `${{origin}}/models/add.onnx`;
      const results = {{}};
      for (const type of ['module', 'classic']) {{
        const shared = new SharedWorker(script(from[type], body, ports), {{ type }});
        const own = new Worker(script(from[type], body, messages), {{ type }});
        results[type] = [await ask(shared.port, model), await ask(own, model), await ask(own, '/models/add.onnx')];
        own.terminate();
      }}
      return results;
    """)  # fmt: skip
    for type in ("module", "classic"):
        assert found[type][:2] == [RIGHT, RIGHT]
        assert found[type][2].startswith('InvalidInput "/models/add.onnx" is not a valid address (')
