"""Bad models and bad feeds: an error of our tree that says what and where, and the session stays usable."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.conftest import Tab

CATCH = """
  const described = (e) => ({
    ours: e instanceof ort.PyRuntimeError, error: e instanceof Error, type: e.type ?? e.name,
    name: e.name, message: e.message, node: e.node ?? '', hint: e.hint ?? '',
  });
"""
BAD_MODELS = {
    "missing": ("404", "InvalidModel", "HTTP 404"),
    "page": ("page", "InvalidModel", ""),
    "cut": ("cut", "InvalidModel", ""),
    "unsupported": ("unsupported", "UnsupportedOp", "Frobnicate"),
}


def test_each_error_opens_its_causes(page: Tab) -> None:
    """The address in a message is that of a heading on a page among the package's files."""
    found = page.run("""
      const error = await ort.InferenceSession.create('/models/cut.onnx').catch((error) => error);
      const [address] = error.message.match(/\\S+$/);
      const text = await (await fetch(address)).text();
      const headings = new DOMParser().parseFromString(text, 'text/html').querySelectorAll('h1[id]');
      const ids = [...headings].map(({ id }) => id);
      const kinds = Object.keys(ort).filter((name) => ort[name].prototype instanceof ort.PyRuntimeError);
      return { help: error.help, address, ids, kinds, helps: kinds.map((name) => new ort[name]('x').help) };
    """)
    assert found["help"] == found["address"] and found["address"].endswith("/dist/errors.html#InvalidModel")
    assert len(found["kinds"]) > 10 and set(found["kinds"]) <= set(found["ids"])
    assert [address.partition("#")[2] for address in found["helps"]] == found["kinds"]


@pytest.mark.parametrize("name, kind, text", BAD_MODELS.values(), ids=BAD_MODELS.keys())
def test_bad_model(page: Tab, name: str, kind: str, text: str) -> None:
    found = page.run(
        CATCH
        + """
        const error = await ort.InferenceSession.create(`/models/${arg}.onnx`).then(() => null, described);
        const after = await ort.InferenceSession.create('/models/add.onnx');
        return { error, after: after.inputNames };
        """,
        name,
    )
    page.forgive("404 (Not Found)")  # Chromium logs it for any page
    assert isinstance(found, dict)
    error = found["error"]
    assert error["ours"] and error["error"] and error["type"] == error["name"] == kind
    assert text in error["message"]
    assert found["after"] == ["a", "b"]


def test_unsupported_names_the_node(page: Tab) -> None:
    error = page.run(
        CATCH + "return ort.InferenceSession.create('/models/unsupported.onnx').then(() => null, described)"
    )
    assert isinstance(error, dict)
    assert 'Frobnicate "odd"' in error["node"] and "opset 17" in error["node"]
    assert error["message"].startswith(error["node"])
    assert "ort.python" in error["hint"] and error["message"].endswith("/errors.html#UnsupportedOp")


def test_external_data_that_was_not_given(page: Tab) -> None:
    """As natively; of a model with an address they come from beside it."""
    error = page.run(f"""{CATCH}
      const model = await (await fetch('/models/external.onnx')).arrayBuffer();
      return ort.InferenceSession.create(model).then(() => null, described);
    """)
    assert isinstance(error, dict) and error["type"] == "InvalidModel"
    assert (
        'external data "external.bin" was not given' in error["message"] and error["hint"] == "list it in externalData"
    )


def test_empty_bytes(page: Tab) -> None:
    error = page.run(CATCH + "return ort.InferenceSession.create(new Uint8Array(0)).then(() => null, described)")
    assert isinstance(error, dict) and error["type"] == "InvalidModel"


GOOD = "a: tensor([2, 3]), b: tensor([2, 3])"
BAD_FEEDS = {
    "missing": ("{ a: tensor([2, 3]) }", '"b" is missing'),
    "unknown name": (f"{{ {GOOD}, z: tensor([2, 3]) }}", '"z"'),
    "wrong dtype": ("{ a: new ort.Tensor('int32', new Int32Array(6), [2, 3]), b: tensor([2, 3]) }", "float32"),
    "wrong rank": ("{ a: tensor([6]), b: tensor([2, 3]) }", "rank"),
    "wrong dim": ("{ a: tensor([3, 2]), b: tensor([2, 3]) }", "index: 0 Got: 3 Expected: 2"),
    "wrong data length": ("{ a: shrunk(), b: tensor([2, 3]) }", "6 elements"),
    "not a tensor": ("{ a: [1, 2, 3, 4, 5, 6], b: tensor([2, 3]) }", "not a tensor"),
    "unknown fetch name": (f"{{ {GOOD} }}, ['nope']", '"nope"'),
}


@pytest.mark.parametrize("feeds, text", BAD_FEEDS.values(), ids=BAD_FEEDS.keys())
def test_bad_feeds(page: Tab, feeds: str, text: str) -> None:
    found = page.run(f"""
      {CATCH}
      const tensor = (dims) => new ort.Tensor('float32', Float32Array.from([1, 2, 3, 4, 5, 6]), dims);
      const shrunk = () => {{
        const t = new ort.Tensor('float32', new Float32Array(4), [2, 2]);
        t.dims[1] = 3;
        return t;
      }};
      const session = await ort.InferenceSession.create('/models/add.onnx');
      const error = await session.run({feeds}).then(() => null, described);
      const {{ c }} = await session.run({{ {GOOD} }});
      return {{ error, after: Array.from(c.data) }};
    """)
    assert isinstance(found, dict)
    assert found["error"]["type"] == "InvalidInput" and found["error"]["ours"]
    assert text in found["error"]["message"]
    assert found["after"] == [2, 4, 6, 8, 10, 12]


def test_symbolic_dim_is_free(page: Tab) -> None:
    dims = page.run("""
      const session = await ort.InferenceSession.create('/models/affine.onnx');
      const dims = [];
      for (const n of [1, 5, 3, 0]) {
        const x = new ort.Tensor('float32', new Float32Array(4 * n), [n, 4]);
        dims.push((await session.run({ x })).y.dims);
      }
      return dims;
    """)
    assert dims == [[1, 3], [5, 3], [3, 3], [0, 3]]


def test_released(page: Tab) -> None:
    found = page.run(
        CATCH
        + """
        const session = await ort.InferenceSession.create('/models/affine.onnx');
        await session.release();
        await session.release();
        const x = new ort.Tensor('float32', new Float32Array(4), [1, 4]);
        return session.run({ x }).then(() => null, described);
        """
    )
    assert isinstance(found, dict) and found["type"] == "SessionFailed"


def test_python_errors_cross(page: Tab) -> None:
    error = page.run(CATCH + "return ort.python('import pyruntime.nothing_here').then(() => null, described)")
    assert isinstance(error, dict) and "nothing_here" in error["message"] and error["ours"]


@pytest.mark.parametrize("code", ["lambda: 1", "[{'a': len}]", "import js\njs.eval('() => 1')", "1 + 1j", 5])
def test_values_that_cannot_leave_python(page: Tab, code: object) -> None:
    error = page.run(CATCH + "return ort.python(arg).then(() => null, described)", code)
    assert isinstance(error, dict) and error["type"] == "InvalidInput" and error["ours"]
    assert "cannot leave Python" in error["message"] or "must be a text" in error["message"]


def test_an_engine_that_cannot_be_fetched_is_named(tab: Callable[..., Tab]) -> None:
    made = tab()
    for file in ("python.image.wasm", "engine.zip"):
        made.page.context.route(f"**/{file}", lambda route: route.abort())
    made.open("/esm.html")
    error = made.run(CATCH + "return ort.InferenceSession.create('/models/add.onnx').then(() => null, described)")
    for text in ("ERR_FAILED", "without the image"):
        made.forgive(text)
    assert isinstance(error, dict) and error["ours"] and "/engine.zip" in error["message"]
