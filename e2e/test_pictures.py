"""Pictures become tensors on the page's GPU, and tensors pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from playwright.sync_api import Browser

from e2e.conftest import Tab, new_tab
from pyruntime.cli.serve import Server

WIDE, HIGH = 37, 23
PREPARE = """
  const device = await ort.env.webgpu.device;
  const [W, H] = [37, 23];
  const pixels = new Uint8ClampedArray(4 * W * H);
  for (let i = 0, seed = 5; i < pixels.length; i++) {
    seed = seed * 16807 % 2147483647;
    pixels[i] = i % 4 === 3 ? 255 : seed >> 8;
  }
  const data = new ImageData(pixels, W, H);
  const canvas = new OffscreenCanvas(W, H);
  canvas.getContext('2d').putImageData(data, 0, 0);
  const gpu = { location: 'gpu-buffer' };
  const USES = { binding: GPUTextureUsage.TEXTURE_BINDING, all: 31 & ~GPUTextureUsage.STORAGE_BINDING };
  const texture = (format = 'rgba8unorm', more = {}) => (
    device.createTexture({ size: [W, H], format, usage: USES.all, ...more }));
  const filled = (format) => {
    const made = texture(format);
    device.queue.copyExternalImageToTexture({ source: canvas }, { texture: made }, [W, H]);
    return made;
  };
  const numbers = async (tensor) => (
    Array.from(tensor.location === 'cpu' ? tensor.data : await tensor.getData(true), Number));
  const difference = (x, y) => Math.abs(x - y) / Math.max(1, Math.abs(y));
  const apart = (a, b) => (
    a.length === b.length ? Math.max(...a.map((x, n) => difference(x, b[n]))) : `${a.length}`);
  const words = ({ type, message }) => `${type}: ${message}`;
  const reason = (action) => Promise.resolve().then(action).then(() => 'taken', words);
  const drawn = (screen) => {
    const copy = new OffscreenCanvas(W, H).getContext('2d');
    copy.drawImage(screen, 0, 0);
    return Array.from(copy.getImageData(0, 0, W, H).data);
  };
"""


@pytest.fixture(scope="module")
def shared(drawing: Browser, servers: dict[str, Server]) -> Iterator[Tab]:
    tab = new_tab(drawing, servers["isolated"])
    tab.open("/esm.html")
    yield tab
    tab.page.context.close()


@pytest.fixture
def page(shared: Tab) -> Iterator[Tab]:
    yield shared
    shared.check()


CASES: list[dict[str, Any]] = [
    {},
    {"tensorFormat": "BGR"},
    {"tensorFormat": "RBG", "norm": {"mean": 1, "bias": -3}},
    {"tensorFormat": "RGBA", "norm": {"mean": [58.4, 57.1, 57.4, 255], "bias": [-123.7, -116.3, -103.5, 0]}},
    {"norm": {"mean": 127.5, "bias": -127.5}},
]


def test_numbers_are_those_of_from_image(page: Tab) -> None:
    """Of each kind of picture, with each option that onnxruntime's `Tensor.fromImage` has, in the same order."""
    found = page.run(
        PREPARE
        + """
        const blob = await canvas.convertToBlob();
        const image = new Image();
        image.src = URL.createObjectURL(blob);
        const element = document.createElement('canvas');
        Object.assign(element, { width: W, height: H }).getContext('2d').putImageData(data, 0, 0);
        const sources = {
          data, canvas, element, image, blob, address: element.toDataURL(), bitmap: await createImageBitmap(canvas),
          frame: new VideoFrame(canvas, { timestamp: 0, alpha: 'discard' }),
        };
        const out = {};
        for (const [n, options] of arg.entries()) {
          const expected = await numbers(await ort.Tensor.fromImage(data, { ...options }));
          for (const [name, source] of Object.entries(sources)) {
            const made = await ort.Tensor.fromImage(source, { ...options, ...gpu });
            const dims = [1, expected.length / W / H, H, W];
            if (made.location !== 'gpu-buffer' || made.dims.join() !== dims.join()) out[name] = made.dims;
            out[`${n} ${name}`] = apart(await numbers(made), expected);
          }
          for (const format of ['rgba8unorm', 'bgra8unorm', 'rgba16float']) {
            const source = filled(format);
            out[`${n} ${format}`] = apart(await numbers(await ort.Tensor.fromTexture(source, options)), expected);
            source.destroy();
          }
        }
        sources.frame.close();
        return out;
        """,
        CASES,
    )
    assert isinstance(found, dict)
    assert len(found) == len(CASES) * 11
    halves = {name: found.pop(name) for name in [*found] if name.endswith("rgba16float")}
    assert max(halves.values()) < 0.2, halves  # half floats have 11 bits
    frames = {name: found.pop(name) for name in [*found] if name.endswith("frame")}
    assert max(frames.values()) < 8, frames  # 8 bits of another colour space, converted twice
    assert {name: apart for name, apart in found.items() if not apart < 4e-7} == {}


def test_an_image_element_on_the_cpu(page: Tab) -> None:
    """It takes `tensorFormat`, which onnxruntime's refuses for it, and the same options twice."""
    found = page.run(
        PREPARE
        + """
  const photo = new Image();
  photo.src = URL.createObjectURL(await canvas.convertToBlob());
  await photo.decode();
  const bitmap = await createImageBitmap(canvas);
  const found = {};
  for (const options of [{}, { norm: { mean: 1, bias: -3 } }, null]) {
    const [once, twice] = [await ort.Tensor.fromImage(photo, options), await ort.Tensor.fromImage(photo, options)];
    found[JSON.stringify(options)] = [once.dims[1], apart(await numbers(once), await numbers(twice))];
  }
  for (const tensorFormat of ['RGB', 'BGR', 'RBG', 'RGBA']) {
    const options = { tensorFormat, norm: { mean: 2 } };
    const [mine, theirs] = [await ort.Tensor.fromImage(photo, options), await ort.Tensor.fromImage(bitmap, options)];
    found[tensorFormat] = [mine.dims[1], apart(await numbers(mine), await numbers(theirs))];
  }
  return found;
"""
    )
    assert found == {
        "{}": [4, 0], '{"norm":{"mean":1,"bias":-3}}': [4, 0], "null": [4, 0],
        "RGB": [3, 0], "BGR": [3, 0], "RBG": [3, 0], "RGBA": [4, 0],
    }  # fmt: skip


RESIZED: list[tuple[str, dict[str, Any]]] = [
    ("smaller", {"resizedWidth": 16, "resizedHeight": 9}),
    ("larger", {"resizedWidth": 50, "resizedHeight": 46}),
    ("one side", {"resizedWidth": 12}),
    ("crop", {"crop": {"x": 3, "y": 5, "width": 20, "height": 11}}),
    ("crop, resized", {"crop": {"x": 3, "y": 5, "width": 20, "height": 11}, "resizedWidth": 7, "resizedHeight": 7}),
    ("rows of pixels", {"tensorLayout": "NHWC", "tensorFormat": "BGR"}),
    ("rows of pixels in halves", {"tensorLayout": "NHWC", "dataType": "float16", "resizedWidth": 15}),
    ("halves", {"dataType": "float16", "norm": {"mean": 64, "bias": -128}, "resizedWidth": 11, "resizedHeight": 5}),
    ("bytes", {"dataType": "uint8", "resizedWidth": 11, "resizedHeight": 5}),
    ("bytes of a channel", {"dataType": "uint8", "tensorFormat": "GRAY"}),
    ("one channel", {"tensorFormat": "GRAY", "norm": {"mean": -255, "bias": -255}}),
]


@pytest.mark.parametrize(("name", "options"), RESIZED, ids=[name for name, _ in RESIZED])
def test_sizes_layouts_and_types(page: Tab, name: str, options: dict[str, Any]) -> None:
    """Against ONNX's operator Resize with antialiasing, and NumPy."""
    found = page.run(
        PREPARE
        + """
        const made = await ort.Tensor.fromImage(canvas, { ...arg, ...gpu });
        const { type, dims } = made;
        return [Array.from(pixels), type, dims, await numbers(made)];
        """,
        options,
    )
    assert isinstance(found, list)
    pixels, kind, dims, numbers = found
    expected = converted(np.array(pixels, np.float32).reshape(HIGH, WIDE, 4), **options)
    assert (kind, tuple(dims)) == (options.get("dataType", "float32"), expected.shape)
    close = {"float32": 2e-6, "float16": 1e-3, "uint8": 0}[kind]
    if kind == "uint8":  # a tie may be rounded either way
        assert np.abs(expected.ravel() - numbers).max() < 0.501
    else:
        np.testing.assert_allclose(numbers, expected.ravel(), rtol=close, atol=close)


def converted(
    picture: np.ndarray, *, tensorFormat: str = "RGB", tensorLayout: str = "NCHW", dataType: str = "float32",
    norm: dict[str, float] | None = None, crop: dict[str, int] | None = None,
    resizedWidth: int | None = None, resizedHeight: int | None = None,
) -> np.ndarray:  # fmt: skip
    """(height, width, 4) of 0 to 255 as the options say, before rounding."""
    if crop:
        rows, columns = (slice(crop[at], crop[at] + crop[size]) for at, size in (("y", "height"), ("x", "width")))
        picture = picture[rows, columns]
    height, width = resizedHeight or picture.shape[0], resizedWidth or picture.shape[1]
    picture = resized(picture, height, width)
    channels = {"RGB": [0, 1, 2], "BGR": [2, 1, 0], "GRAY": []}[tensorFormat]
    gray = picture[..., :3] @ np.array([0.299, 0.587, 0.114], np.float32)
    found = picture[..., channels] if channels else gray[..., None]
    mean, bias = (norm or {"mean": 1 if dataType == "uint8" else 255, "bias": 0}).values()
    found = (found + bias) / mean
    return found[None] if tensorLayout == "NHWC" else found.transpose(2, 0, 1)[None]


def resized(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    text = """<ir_version: 9, opset_import: ["" : 19]> g (float[H, W, 4] x, int64[3] size) => (float[h, w, 4] y)
        { y = Resize <antialias = 1, mode = "linear", exclude_outside = 1> (x, , , size) }"""
    size = np.array([height, width, 4])
    return ReferenceEvaluator(onnx.parser.parse_model(text)).run(None, {"x": picture, "size": size})[0]


def test_tensors_become_pictures(page: Tab) -> None:
    """The same bytes as `toImageData`, where that has the layout; into new textures, given ones and canvases."""
    found = page.run(
        PREPARE
        + """
        const rgba = { dataType: 'uint8', tensorFormat: 'RGBA', tensorLayout: 'NHWC' };
        const bytes = async (made) => numbers(await ort.Tensor.fromTexture(made, rgba));
        const out = {};
        const expected = Array.from(pixels);
        const norm = { mean: [58.4, 57.1, 57.4], bias: [2, 2, 2] };
        for (const [name, from, to] of [
          ['plain', {}, {}], ['halves', { dataType: 'float16' }, {}], ['bytes', { dataType: 'uint8' }, {}],
          ['four', { tensorFormat: 'RGBA' }, {}], ['BGR', { tensorFormat: 'BGR' }, { format: 'BGR' }],
          ['rows', { tensorLayout: 'NHWC' }, { tensorLayout: 'NHWC' }],
          ['norm', { norm: { mean: norm.mean } }, { norm: { mean: norm.mean } }],
        ]) {
          const tensor = await ort.Tensor.fromImage(canvas, { ...from, ...gpu });
          out[name] = apart(await bytes(await tensor.toTexture(to)), expected);
          tensor.dispose();
        }
        const cpu = await ort.Tensor.fromImage(data, { norm: { mean: 255, bias: 0 } });
        out.cpu = apart(await bytes(await cpu.toTexture()), Array.from(cpu.toImageData().data));
        const shifted = { norm, format: 'RGB' };
        out.shifted = apart(await bytes(await cpu.toTexture(shifted)), Array.from(cpu.toImageData(shifted).data));
        const gray = new ort.Tensor('float32', Float32Array.of(0, 0.5, 1, 2), [1, 1, 2, 2]);
        out.gray = (await bytes(await gray.toTexture())).join();
        for (const format of ['bgra8unorm', 'rgba16float']) {
          const target = texture(format);
          if (await cpu.toTexture({ texture: target }) !== target) out.target = 'another';
          out[format] = apart(await bytes(target), expected);
        }
        const screens = { screen: document.createElement('canvas'), offscreen: new OffscreenCanvas(1, 1) };
        for (const [name, screen] of Object.entries(screens)) {
          await cpu.toTexture({ canvas: screen });
          out[name] = apart(drawn(screen), expected);
        }
        return out;
        """
    )
    assert isinstance(found, dict)
    assert found.pop("gray") == "0,0,0,255,128,128,128,255,255,255,255,255,255,255,255,255"
    assert {name: apart for name, apart in found.items() if not apart <= (1 if name == "shifted" else 0)} == {}


def test_nothing_crosses_and_nothing_grows(page: Tab) -> None:
    """A canvas, a session, a canvas, again and again."""
    found = page.run(
        PREPARE
        + """
        const create = { executionProviders: ['webgpu'], preferredOutputLocation: 'gpu-buffer' };
        const session = await ort.InferenceSession.create(Uint8Array.from(arg), create);
        const screen = document.createElement('canvas');
        const round = async () => {
          const x = await ort.Tensor.fromImage(canvas, gpu);
          const { y } = await session.run({ x });
          await y.toTexture({ canvas: screen });
          for (const tensor of [x, y]) tensor.dispose();
        };
        const before = (await ort.stats()).tensors;
        for (let n = 0; n < 3; n++) await round();
        const counts = {};
        const count = (type, name, bytes) => {
          const method = type.prototype[name];
          type.prototype[name] = function (...args) {
            counts[name] = (counts[name] ?? 0) + bytes(...args);
            return method.apply(this, args);
          };
          return () => { type.prototype[name] = method; };
        };
        const restore = [
          count(GPUBuffer, 'mapAsync', () => 1), count(GPUDevice, 'createTexture', () => 1),
          count(GPUDevice, 'createBuffer', () => 1),
          count(GPUQueue, 'writeBuffer', (buffer, at, data) => data.byteLength),
        ];
        for (let n = 0; n < 8; n++) await round();
        for (const undo of restore) undo();
        const inverse = drawn(screen).map((level, i) => (i % 4 === 3 ? level : 255 - level));
        await session.release();
        return [counts, apart(inverse, Array.from(pixels)), (await ort.stats()).tensors - before];
        """,
        list(
            onnx.parser.parse_model(
                """<ir_version: 9, opset_import: ["" : 18]> g (float[1, 3, h, w] x) => (float[1, 3, h, w] y)
                { one = Constant <value = float {1}> ()  y = Sub (one, x) }"""
            ).SerializeToString()
        ),
    )
    assert found == [{"writeBuffer": 8 * 2 * 64}, 0, 0]  # in each of 8 rounds, the parameters of both shaders


def test_what_is_refused(page: Tab) -> None:
    found = page.run(
        PREPARE
        + """
        const { fromImage, fromTexture } = ort.Tensor;
        const other = await (await navigator.gpu.requestAdapter()).requestDevice();
        const foreign = other.createTexture({ size: [W, H], format: 'rgba8unorm', usage: USES.all });
        const gone = texture();
        gone.destroy();
        const tensor = await fromImage(canvas, gpu);
        const disposed = await fromImage(canvas, gpu);
        disposed.dispose();
        const dims = [1, 3, 2, 2];
        const wrap = (usage) => ort.Tensor.fromGpuBuffer(device.createBuffer({ size: 48, usage }), { dims });
        const flat = new OffscreenCanvas(1, 1);
        flat.getContext('2d');
        const from = (options) => () => fromImage(canvas, { ...gpu, ...options });
        const cases = {
          device: () => fromTexture(foreign), destroyed: () => fromTexture(gone),
          usage: () => fromTexture(texture('rgba8unorm', { usage: 16 })), format: () => fromTexture(texture('r32uint')),
          depth: () => fromTexture(texture('depth24plus', { usage: USES.binding })),
          samples: () => fromTexture(texture('rgba8unorm', { sampleCount: 4, usage: 4 | 16 })),
          order: from({ tensorFormat: 'GBR' }), layout: from({ tensorLayout: 'CHW' }), type: from({ dataType: 'int8' }),
          size: from({ resizedWidth: 0 }), mean: from({ norm: { mean: [1, 2] } }),
          crop: from({ crop: { x: 30, y: 0, width: 8, height: 1 } }), picture: () => fromImage({}, gpu),
          bare: () => fromImage(new OffscreenCanvas(2, 2), gpu), blob: () => fromImage(new Blob(['x']), gpu),
          disposed: () => disposed.toTexture(), dims: () => new ort.Tensor('float32', [1, 2], [1, 2]).toTexture(),
          channels: () => tensor.toTexture({ format: 'RGBA' }),
          words: () => new ort.Tensor('int32', [1], [1, 1, 1, 1]).toTexture(),
          target: () => tensor.toTexture({ texture: texture('rgba8unorm', { size: [2, 2] }) }),
          'target format': () => tensor.toTexture({ texture: texture('r32uint') }),
          empty: () => fromImage(document.createElement('video'), gpu),
          'target usage': () => tensor.toTexture({ texture: texture('rgba8unorm', { usage: 4 }) }),
          'target device': () => tensor.toTexture({ texture: foreign }),
          buffer: () => wrap(GPUBufferUsage.COPY_SRC).toTexture(), context: () => tensor.toTexture({ canvas: flat }),
        };
        const out = {};
        for (const [name, action] of Object.entries(cases)) out[name] = await reason(action);
        const last = await numbers(await fromTexture(filled('rgba8unorm'), { dataType: 'uint8' }));
        return [out, last.length, (await numbers(tensor)).length];
        """
    )
    assert isinstance(found, list)
    parts = {
        "device": "another GPUDevice", "destroyed": "was destroyed", "usage": "TEXTURE_BINDING", "format": "r32uint",
        "depth": "depth24plus", "samples": "one sample", "order": "RGB, RGBA, BGR", "layout": "NCHW, NHWC",
        "type": "float32, float16, uint8", "size": "resizedWidth cannot be 0", "mean": "norm.mean",
        "crop": "not within", "picture": "no picture", "bare": "no picture", "blob": "no picture",
        "disposed": "disposed of", "dims": "[1, 2] is no picture",
        "channels": "[1, 4, height, width]", "words": "int32", "target": "2 x 2 pixels",
        "target format": "r32uint", "empty": "no pixels", "target usage": "RENDER_ATTACHMENT",
        "target device": "another GPUDevice", "buffer": "STORAGE", "context": "another context",
    }  # fmt: skip
    assert found[0].keys() == parts.keys()
    for name, part in parts.items():
        assert found[0][name].startswith("InvalidInput") and part in found[0][name], (name, found[0][name])
    assert found[1:] == [3 * WIDE * HIGH] * 2


CAMERA = """
  const video = document.createElement('video');
  video.srcObject = await navigator.mediaDevices.getUserMedia({ video: true });
  await video.play();
  const bitmaps = [];
  const { createImageBitmap } = globalThis;
  globalThis.createImageBitmap = (...args) => bitmaps.push(1) && createImageBitmap(...args);
  const { videoWidth: width, videoHeight: height } = video;
  const crop = { x: (width - height) / 2, y: 0, width: height, height };
  const how = { location: 'gpu-buffer', crop, resizedWidth: 8, resizedHeight: 8, dataType: 'uint8' };
  const made = await ort.Tensor.fromImage(video, how);
  for (const track of video.srcObject.getTracks()) track.stop();
  return [made.dims, new Set(await made.getData(true)).size > 1, bitmaps.length];
"""


def test_a_camera(page: Tab, tab: Callable[..., Tab]) -> None:
    """Its frames are bound as they are; if the browser cannot, they are copied by way of an ImageBitmap."""
    assert page.run(CAMERA) == [[1, 3, 8, 8], True, 0]
    plain = tab()
    plain.open("/esm.html")
    assert plain.run(CAMERA) == [[1, 3, 8, 8], True, 1]


def test_pages_without_pictures_fetch_no_code_of_them(tab: Callable[..., Tab]) -> None:
    made = tab()
    made.open("/esm.html")
    made.run(
        PREPARE.partition("const [W, H]")[0]
        + """
        const { fromImage, fromTexture } = ort.Tensor;
        const plain = [await fromImage(new ImageData(2, 2)), fromTexture({}, { width: 1, height: 1 })];
        const places = plain.map(({ location }) => location).join();
        if (places !== 'cpu,texture') throw new Error(places);
        """
    )
    asked = [url for url in made.requests if "pictures" in url]
    made.run("(await ort.Tensor.fromImage(new ImageData(2, 2), { location: 'gpu-buffer' })).dispose()")
    assert not asked and any("pictures.mjs" in url for url in made.requests)
