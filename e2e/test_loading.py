"""Every way into a page, isolated and not; models from every kind of source."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from onnx import external_data_helper, helper, numpy_helper, parser

from e2e.conftest import Tab
from kit import gguf_models
from kit import small_models as models
from kit.chromium import ROOT
from kit.gpu import GPU_IN_PAGES
from pyruntime import InferenceSession

X = np.arange(8, dtype=np.float32).reshape(2, 4)
Y = np.maximum(X @ models.WEIGHT + models.BIAS, 0)
STORED = """
  const stored = async (bytes) => {
    const file = await (await navigator.storage.getDirectory()).getFileHandle('given', { create: true });
    const writable = await file.createWritable();
    await writable.write(bytes);
    await writable.close();
    return file;
  };
"""
RUN = """
  const x = new ort.Tensor('float32', Float32Array.from([0, 1, 2, 3, 4, 5, 6, 7]), [2, 4]);
  const { y } = await session.run({ x });
  const found = { dims: y.dims, data: Array.from(y.data), isTensor: y instanceof ort.Tensor };
  await session.release();
  return found;
"""


def assert_affine(found: object) -> None:
    assert isinstance(found, dict) and found["isTensor"]
    assert found["dims"] == [2, 3]
    np.testing.assert_allclose(np.array(found["data"]).reshape(2, 3), Y, rtol=1e-5)


@pytest.mark.parametrize("kind", ["isolated", "plain", "strict"])
@pytest.mark.parametrize("way", ["esm", "script", "cjs"])
def test_ways_in(tab: Callable[..., Tab], way: str, kind: str) -> None:
    """Script tag, ESM and CJS; isolated, not isolated, isolated and under a Content-Security-Policy."""
    made = tab(kind)
    made.open(f"/{way}.html")
    assert made.run("return globalThis.crossOriginIsolated") is (kind != "plain")
    assert_affine(made.run("const session = await ort.InferenceSession.create('/models/affine.onnx');" + RUN))


def test_import_does_nothing(tab: Callable[..., Tab]) -> None:
    """No worker, no request for the engine before the first session."""
    page = tab()
    page.open("/esm.html")
    page.page.wait_for_timeout(200)
    assert not [url for url in page.requests if url.endswith((".wasm", ".zip")) or "worker" in url]


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_no_request_leaves_the_origin(tab: Callable[..., Tab], kind: str) -> None:
    """The tab fails on any; here the list is looked at as well."""
    page = tab(kind)
    page.open("/esm.html")
    assert_affine(page.run("const session = await ort.InferenceSession.create('/models/affine.onnx');" + RUN))
    assert {url.split("/")[2] for url in page.requests} == {page.origin.split("/")[2]}
    assert any(url.endswith("python.image.wasm") for url in page.requests)


SOURCES = {
    "address": "'/models/affine.onnx'",
    "relative address": "'models/affine.onnx'",
    "ArrayBuffer": "await file()",
    "Uint8Array": "new Uint8Array(await file())",
    "ArrayBuffer, offset, length": "padded.buffer, 5, padded.length - 12",
    "Uint8Array in a larger buffer": "padded.subarray(5, padded.length - 7)",
    "URL": "new URL('/models/affine.onnx', location.href)",
    "Blob": "new Blob([bytes])",
    "Response": "await fetch('/models/affine.onnx')",
    "stream": "new Blob([bytes]).stream()",
    "file of the origin": "await stored(bytes)",
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_sources(page: Tab, source: str) -> None:
    prepare = """
      const file = async () => (await fetch('/models/affine.onnx')).arrayBuffer();
      const bytes = new Uint8Array(await file());
      const padded = new Uint8Array(bytes.length + 12);
      padded.set(bytes, 5);
    """
    create = f"const session = await ort.InferenceSession.create({source}); if (padded.length === 0) throw 1;"
    assert_affine(page.run(STORED + prepare + create + RUN))


EXTERNAL = {
    "path and address": "[{ path: 'external.bin', data: '/models/external.bin' }]",
    "path and bytes": "[{ path: 'external.bin', data: new Uint8Array(await bytes()) }]",
    "path and buffer": "[{ path: 'external.bin', data: await bytes() }]",
    "path and blob": "[{ path: 'external.bin', data: new Blob([await bytes()]) }]",
    "path and response": "[{ path: 'external.bin', data: await fetch('/models/external.bin') }]",
    "path and stream": "[{ path: 'external.bin', data: new Blob([await bytes()]).stream() }]",
    "path and file of the origin": "[{ path: 'external.bin', data: await stored(await bytes()) }]",
    "path and view": "[{ path: 'external.bin', data: new DataView(await bytes()) }]",
    "name beside the model": "['external.bin']",
    "not named": "undefined",
    "whole address": "[`${location.origin}/models/external.bin`]",
    "path from here": "['./external.bin']",
    "path from here, in Windows": "[{ path: '.\\\\external.bin', data: '/models/external.bin' }]",
    "another one of that name": "['external.bin', { path: 'other/external.bin', data: new Uint8Array(1) }]",
    "the last one counts": "[{ path: 'external.bin', data: '/not/there' }, 'external.bin']",
}


@pytest.mark.parametrize("files", EXTERNAL.values(), ids=EXTERNAL.keys())
def test_external_data(page: Tab, files: str) -> None:
    script = f"""
      const bytes = async () => (await fetch('/models/external.bin')).arrayBuffer();
      const session = await ort.InferenceSession.create('/models/external.onnx', {{ externalData: {files} }});
    """
    assert_affine(page.run(STORED + script + RUN))


def test_external_data_that_is_none(page: Tab) -> None:
    """What has no bytes is refused, not taken for a file that is empty."""
    told = page.run("""
      const used = new Response('x');
      await used.text();
      const read = new Response('x').body;
      read.getReader();
      const data = [null, 5, {}, Promise.resolve(new Uint8Array(1)), used, read, new Response('x', { status: 404 })];
      const named = data.map((data) => ({ path: 'external.bin', data }));
      const files = [null, 5, new Blob(), { data: new Uint8Array(1) }, ...named];
      const create = (file) => ort.InferenceSession.create('/models/external.onnx', { externalData: [file] });
      return Promise.all(files.map((file) => create(file).catch((error) => error.type)));
    """)
    assert told == ["InvalidInput"] * 11


def test_external_data_of_one_name_in_two_folders(page: Tab) -> None:
    """Given by their paths each is found; by their bare name only one could be, and none is guessed."""
    halves = [np.full((2, 2), k, np.float32) for k in (1, 2)]
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"])]
    sides = [helper.make_tensor_value_info(name, 1, [1, 2]) for name in "xy"]
    weights = [numpy_helper.from_array(half, name) for half, name in zip(halves, "ab", strict=True)]
    for weight in weights:
        external_data_helper.set_external_data(weight, f"{weight.name}/w.bin")
        weight.ClearField("raw_data")
    model = helper.make_model(helper.make_graph(nodes, "g", sides[:1], sides[1:], weights))
    found = page.run(
        """
      const [model, ...files] = arg.map((bytes) => Uint8Array.from(bytes));
      const given = (...paths) => ({ externalData: paths.map((path, i) => ({ path, data: files[i] })) });
      const session = await ort.InferenceSession.create(model, given('a/w.bin', './b/w.bin'));
      const { y } = await session.run({ x: new ort.Tensor('float32', [1, 1], [1, 2]) });
      await session.release();
      const refused = (...paths) => ort.InferenceSession.create(model, given(...paths)).catch(({ message }) => message);
      return [Array.from(y.data), await refused('w.bin'), await refused('c/w.bin', 'd/w.bin')];
    """,
        [list(model.SerializeToString()), *(list(half.tobytes()) for half in halves)],
    )
    assert isinstance(found, list)
    assert found[0] == [8, 8] and '"b/w.bin" was not given' in found[1] and '"a/w.bin" was not given' in found[2]


def test_onnxruntimes_own_format(page: Tab) -> None:
    create = """const extra = { session: { load_model_format: 'ORT' } };
      const session = await ort.InferenceSession.create('/models/affine.ort', { extra });"""
    assert_affine(page.run(create + RUN))


@pytest.mark.parametrize("of_gpu", [False, True])
def test_gguf(page: Tab, tmp_path: Path, of_gpu: bool) -> None:
    """A page opens llama.cpp's files from their bytes, and computes what a native session does."""
    path = tmp_path / "model.gguf"
    gguf_models.write(path, "llama", GGMLQuantizationType.Q4_1)
    found = page.run(
        """
      const model = Uint8Array.from(arg.model);
      const session = await ort.InferenceSession.create(model, { executionProviders: arg.providers });
      const ids = (values) => new ort.Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);
      const feeds = { input_ids: ids(arg.tokens), attention_mask: ids(arg.tokens.map(() => 1)) };
      feeds.position_ids = ids(arg.tokens.map((_, n) => n));
      for (const { name, shape } of session.inputMetadata.slice(3)) {
        feeds[name] = new ort.Tensor('float32', [], [1, shape[1], 0, shape[3]]);
      }
      const { logits } = await session.run(feeds, ['logits']);
      await session.release();
      return Array.from(await logits.getData());
    """,
        {"model": [*path.read_bytes()], "tokens": gguf_models.TOKENS,
         "providers": [GPU_IN_PAGES, "wasm"] if of_gpu else ["wasm"]},
    )  # fmt: skip
    session = InferenceSession(path)
    tokens = np.array([gguf_models.TOKENS])
    feeds = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32) for i in session.get_inputs()[3:]}
    feeds |= {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    (want,) = session.run(["logits"], {**feeds, "position_ids": np.arange(tokens.size)[None]})
    np.testing.assert_allclose(found, want.ravel(), rtol=0, atol=3e-5)


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_progress(tab: Callable[..., Tab], kind: str) -> None:
    page = tab(kind)
    page.open("/esm.html")
    phases = page.run("""
      const seen = [];
      const onProgress = (p) => seen.push(p);
      await ort.InferenceSession.create('/models/affine.onnx', { onProgress });
      return seen;
    """)
    assert isinstance(phases, list)
    names = [p["phase"] for p in phases]
    assert set(names) == {"boot", "download", "compile", "init"}
    assert names.index("compile") < names.index("init")
    size = (ROOT / "build/models/affine.onnx").stat().st_size
    last = [p for p in phases if p["phase"] == "download"][-1]
    assert last == {"phase": "download", "loaded": size, "total": size}


def test_metadata(page: Tab) -> None:
    found = page.run("""
      const s = await ort.InferenceSession.create('/models/types.onnx', { executionProviders: ['wasm'] });
      return { names: [s.inputNames, s.outputNames], inputs: s.inputMetadata, outputs: s.outputMetadata };
    """)
    assert isinstance(found, dict)
    assert found["names"] == [["i", "p"], ["n", "t"]]
    assert found["inputs"][0] == {"name": "i", "isTensor": True, "type": "int64", "shape": [3]}
    assert found["outputs"][1] == {"name": "t", "isTensor": True, "type": "bool", "shape": [2]}


def test_demo_site_is_self_contained() -> None:
    """No address outside the site in any of its pages."""
    for file in (ROOT / "demo").rglob("*"):
        if file.suffix in (".html", ".css", ".js"):
            text = Path(file).read_text()
            text = re.sub(r"https://(www\.w3\.org|github\.com|www\.apache\.org/licenses)/", "", text)  # names and links
            assert "https://" not in text, file


def test_free_dimensions_are_overridden(page: Tab) -> None:
    found = page.run("""
      const options = { freeDimensionOverrides: { batch: 2 } };
      const session = await ort.InferenceSession.create('/models/affine.onnx', options);
      const feed = (rows) => ({ x: new ort.Tensor('float32', new Float32Array(4 * rows), [rows, 4]) });
      const { y } = await session.run(feed(2));
      const wrong = await session.run(feed(3)).then(() => '', (error) => error.name);
      return [session.inputMetadata[0].shape, y.dims, wrong];
    """)
    assert found == [[2, 4], [2, 3], "InvalidInput"]


def test_a_default_of_an_input_is_overridden_by_what_is_fed(page: Tab) -> None:
    found = page.run("""
      const session = await ort.InferenceSession.create('/models/overridable.onnx');
      const tensor = (...values) => new ort.Tensor('float32', Float32Array.from(values), [values.length]);
      const found = [session.inputNames];
      for (const feeds of [{}, { w: tensor(5, 7) }, {}, { w: tensor(0, 1, 2) }, {}]) {
        const x = tensor(...[1, 10, 100].slice(0, feeds.w?.dims[0] ?? 2));
        found.push(Array.from((await session.run({ x, ...feeds })).y.data));
      }
      found.push(await session.run({ x: tensor(1, 1), w: null }).then(() => '', (error) => error.name));
      return found;
    """)
    assert found == [["x"], [1, 20], [5, 70], [1, 20], [0, 10, 200], [1, 20], "InvalidInput"]


def test_free_dimensions_that_no_input_has_are_warned_of(page: Tab) -> None:
    page.run("await ort.InferenceSession.create('/models/affine.onnx', { freeDimensionOverrides: { nowhere: 2 } })")
    assert page.warnings == ['pyruntime: no input has the free dimension "nowhere" (named dimensions: batch)']


def test_a_note_says_that_a_sparse_initializer_becomes_dense(page: Tab) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 2] x) => (float[2, 2] y) { y = Mul (x, w) }'
    )
    values, places = (numpy_helper.from_array(np.array([3], t), "w") for t in (np.float32, np.int64))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2, 2]))
    script = """
      const session = await ort.InferenceSession.create(new Uint8Array(arg));
      const { y } = await session.run({ x: new ort.Tensor('float32', Float32Array.of(1, 2, 3, 4), [2, 2]) });
      return Array.from(y.data);
    """
    assert page.run(script, list(model.SerializeToString())) == [0, 0, 0, 12]
    assert [w for w in page.warnings if 'initializer "w" is sparse and becomes dense: it takes 16 bytes' in w]
