"""What programs written for onnxruntime-web do and its types do not say."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from e2e.conftest import Profile, Tab
from e2e.test_program_cache import KEPT
from kit import zoo
from kit.chromium import ROOT
from kit.programs.compare import assert_same
from kit.programs.vad import BUNDLES
from kit.small_models import mapped, zipped

JOIN = """
  const session = await ort.InferenceSession.create('/models/joined.onnx', { executionProviders: arg.providers });
  const vector = (...data) => new ort.Tensor('float32', data, [data.length]);
  const out = [];
  for (let n = 0; n < 12; n++) {
    const { c } = await session.run({ a: vector(1, 2), b: n % 3 ? vector(3, 4, 5) : vector(6, 7) });
    out.push(Array.from(c.data).join());
  }
  await session.release();
  return out;
"""
JOINED = ["1,2,6,7", "1,2,3,4,5", "1,2,3,4,5"] * 4


@pytest.mark.parametrize("providers", [["wasm"], ["webgpu"]])
def test_dims_of_one_name_may_differ(tab: Callable[..., Tab], providers: list[str]) -> None:
    made = tab()
    made.open("/esm.html")
    assert made.run(JOIN, {"providers": providers}) == JOINED
    assert len([text for text in made.warnings if 'dims named "n" have different sizes' in text]) == 1


def test_and_in_a_program_that_an_earlier_page_compiled(profile: Profile) -> None:
    for python in (True, False):
        tab = profile.tab()
        found = tab.run("await ort.InferenceSession.create('/models/joined.onnx'); return (await ort.stats()).heap > 0")
        assert found is python
        tab.run(KEPT, 1)
    assert tab.run(JOIN, {"providers": ["wasm"]}) == JOINED


ZIP = """
  const session = await ort.InferenceSession.create('/models/zipped.onnx');
  const x = new ort.Tensor('float32', [1, 2, 3, 6, 5, 4], [2, 3]);
  const { y, z } = await session.run({ x });
  const plain = [y, z].map((maps) => maps.map((map) => [...map]));
  const into = new ort.Tensor('float32', new Float32Array(6), [2, 3]);
  const refused = await session.run({ x }, { y: into, z: null }).catch(({ message }) => message);
  const told = session.outputMetadata.map(({ name, isTensor }) => [name, isTensor]);
  await session.release();
  return { plain, refused, told };
"""


def test_maps_come_out_of_a_zip_map(profile: Profile) -> None:
    """Compiled in the page, and by an earlier one."""
    feeds = {"x": np.array([[1, 2, 3], [6, 5, 4]], np.float32)}
    rows = zoo.oracle_session(zipped().SerializeToString()).run(None, feeds)
    expected = [[[[*pair] for pair in row.items()] for row in maps] for maps in rows]
    for _ in range(2):
        tab = profile.tab()
        found = tab.run(ZIP)
        assert_same(found["plain"], expected)
        assert 'output "y" is a sequence of maps' in found["refused"]
        assert found["told"] == [["y", False], ["z", False]]
        tab.run(KEPT, 1)
    assert tab.run("return (await ort.stats()).heap") == 0


MAPPED = """
  const session = await ort.InferenceSession.create('/models/mapped.onnx');
  const x = new Map([['fig', 1.5], ['pear', 2], ['plum', 3]]);
  const m = new Map([[3, 1.25], [1n, 2], [9, 0.1]]);
  const run = async (feeds) => Object.values(await session.run(feeds)).map(({ data, dims }) => [[...data], dims]);
  const out = [await run({ x, m }), await run({ x: { fig: 1.5, pear: 2, plum: 3 }, m: { 9: 0.1, 1: 2, 3: 1.25 } })];
  const wrong = [
    { x }, { x, m: new ort.Tensor('float32', [1], [1]) }, { x: { fig: 'b' }, m }, { x: new Map([[1, 1]]), m },
    { x, m: { a: 1 } }, { x, m: { '-1': 1 } }, { x, m, y: m },
  ];
  const words = [];
  const reason = ({ name, message }) => `${name}: ${message}`;
  for (const feeds of wrong) words.push(await session.run(feeds).then(() => 'taken', reason));
  const told = [session.inputNames, session.inputMetadata.map(({ isTensor }) => isTensor)];
  await session.release();
  return { out, words, told };
"""


def test_maps_as_inputs(page: Tab) -> None:
    """As Maps and as objects."""
    feeds = {"x": {"fig": 1.5, "pear": 2.0, "plum": 3.0}, "m": {3: 1.25, 1: 2.0, 9: 0.1}}
    rows = zoo.oracle_session(mapped().SerializeToString()).run(None, feeds)
    expected = [[row.ravel().tolist(), list(row.shape)] for row in rows]
    parts = ['"m" is missing', '"m" is a map', "another type: b", "no string", "no int64", "negative", 'no input "y"']
    found: Any = page.run(MAPPED)
    assert_same(found["out"], [expected, expected])
    for word, part in zip(found["words"], parts, strict=True):
        assert word.startswith("InvalidInput") and part in word
    assert found["told"] == [["x", "m"], [False, False]]


def test_one_number_may_come_in_any_rank(page: Tab) -> None:
    found = page.run("""
      const session = await ort.InferenceSession.create('/models/number.onnx');
      const out = [];
      for (let n = 0; n < 12; n++) {
        const { y } = await session.run({ x: new ort.Tensor('int64', [16000n], [[], [1], [1, 1]][n % 3]) });
        out.push(`${y.data} of rank ${y.dims.length}`);
      }
      const two = new ort.Tensor('int64', [1n, 2n], [2]);
      out.push(await session.run({ x: two }).then(() => 'taken', ({ message }) => message));
      return out;
    """)
    assert isinstance(found, list)
    assert found[:-1] == ["-16000 of rank 0"] * 12
    assert "must be [], it is [2]: rank Got: 1 Expected: 0" in found[-1]


def test_backends_of_others_keep_working(page: Tab) -> None:
    found = page.run("""
      const handler = {
        inputNames: [], outputNames: ['r'], inputMetadata: [], outputMetadata: [],
        startProfiling() {}, endProfiling() {},
        run: async () => ({ r: new ort.Tensor('float32', [7], [1]) }), dispose: async () => {},
      };
      ort.registerBackend('theirs', { init: async () => {}, createInferenceSessionHandler: async () => handler }, -1);
      const session = await ort.InferenceSession.create('x', { executionProviders: ['theirs'] });
      const { r } = await session.run({});
      await session.release();
      return r.data[0];
    """)
    assert found == 7


SCRIPTS = {
    "esbuild": ["--bundle", "--format=iife", "--log-level=error", "--outfile={}"],
    "rolldown": ["--format", "iife", "--log-level", "silent", "--file", "{}"],
}


@pytest.mark.parametrize("bundler", SCRIPTS)
def test_a_bundle_that_is_no_module(tab: Callable[..., Tab], bundler: str) -> None:
    """Of one file, in which import.meta.url is nothing: the engine's files, those for the page's GPU too, are where
    wasmPaths says."""
    entry, out = (BUNDLES / f"{bundler}{suffix}.js" for suffix in ("", ".iife"))
    entry.write_text("import * as ort from 'pyruntime'; globalThis.bundled = ort;")
    how = [part.format(out) for part in SCRIPTS[bundler]]
    subprocess.run([f"node_modules/.bin/{bundler}", str(entry), *how], cwd=ROOT, check=True)
    made = tab()
    made.open("/bridge/blank.html")
    made.page.add_script_tag(url=f"/built/{out.name}")
    found: Any = made.page.evaluate("""async () => {
      const open = (options) => bundled.InferenceSession.create('/models/add.onnx', options);
      const refused = await open().catch((error) => error.message);
      bundled.env.wasm.wasmPaths = '/dist/';
      const opened = [];
      for (const options of [{}, { executionProviders: ['webgpu'], preferredOutputLocation: 'gpu-buffer' }]) {
        const session = await open(options);
        opened.push(...session.inputNames);
        await session.release();
      }
      return [refused, opened];
    }""")
    assert "env.wasm.wasmPaths must name the engine's folder" in found[0]
    assert found[1] == ["a", "b", "a", "b"]
