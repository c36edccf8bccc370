"""Training in pages and in Node.js: curves equal to native ones, checkpoints, export, what is refused."""

from __future__ import annotations

import base64
import inspect
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from e2e.conftest import Tab
from kit import half_training, trapping_kernel
from kit.chromium import ROOT
from kit.training_networks import batch, convolutional, deep, dense, digits, layer
from kit.training_reports import MEMORY, check_reports
from pyruntime import TrainingSession

STEPS, ROWS, EPOCHS = 22, 64, 14
OPTIONS = {"loss": {"crossEntropy": "logits"}, "optimizer": {"adam": {"rate": 0.01}}, "seed": 1}

TRAIN = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const model = bytes(arg.model);
  const [images, labels] = [Float32Array.from(arg.images), Int32Array.from(arg.labels)];
  const image = (n) => [...images.subarray(64 * n, 64 * n + 64)];
  const batch = (rows) => ({
    image: new ort.Tensor('float32', Float32Array.from(rows.flatMap(image)), [rows.length, 1, 8, 8]),
    target: new ort.Tensor('int32', Int32Array.from(rows, (n) => labels[n]), [rows.length]),
  });
  const session = await ort.TrainingSession.create(model, { ...arg.options, executionProviders: arg.providers });
  const losses = [];
  const heard = [];
  const note = ({ type, session: id, loss }) => type === 'step' && id === session.id && heard.push(loss);
  const end = ort.on('session', note);
  for (const rows of arg.batches) losses.push((await session.step(batch(rows))).loss);
  await new Promise((done) => setTimeout(done));
  end();
  const { loss, logits } = await session.evaluate(batch(arg.held), ['logits']);
  const largest = (row) => row.indexOf(Math.max(...row));
  const best = arg.held.map((_, n) => largest([...logits.data.subarray(10 * n, 10 * n + 10)]));
  const state = await session.state();
  const file = await session.export();
  const lossOf = async (n) => (await session.step(batch(arg.batches[n]))).loss;
  const next = async () => [await lossOf(0), await lossOf(1)];
  const first = await next();
  await session.load(state);
  await session.trim();
  const again = await next();
  await session.release();
  const text = (data) => btoa(Array.from(data, (c) => String.fromCharCode(c)).join(''));
  const parameters = session.parameters();
  return { losses, heard, loss, best, state: text(state), file: text(file), first, again, parameters };
"""


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def arg() -> dict[str, Any]:
    images, labels, held, held_labels = digits()
    rng, batches = np.random.default_rng(1), []
    for _ in range(EPOCHS):
        order = rng.permutation(len(images))
        batches += [order[n : n + ROWS].tolist() for n in range(0, STEPS * ROWS, ROWS)]
    every = np.concatenate([images, held]).ravel().tolist()
    return {
        "model": encoded(convolutional()), "options": OPTIONS, "providers": ["wasm"], "images": every,
        "labels": np.concatenate([labels, held_labels]).tolist(), "batches": batches,
        "held": list(range(len(images), len(images) + len(held))),
    }  # fmt: skip


@pytest.fixture(scope="module")
def native(arg: dict[str, Any]) -> list[float]:
    """The losses of the same steps natively."""
    images = np.array(arg["images"], np.float32).reshape(-1, 1, 8, 8)
    labels = np.array(arg["labels"])
    with TrainingSession(
        convolutional(), loss={"cross_entropy": "logits"}, optimizer={"adam": {"rate": 0.01}}, seed=1
    ) as session:  # fmt: skip
        return [session.step({"image": images[b], "target": labels[b]}).loss for b in arg["batches"]]


def check(found: Any, arg: dict[str, Any], native: list[float], tolerance: float) -> None:
    labels = np.array(arg["labels"])[arg["held"]]
    assert (np.array(found["best"]) == labels).mean() >= 0.97
    np.testing.assert_allclose(found["losses"], native, atol=tolerance)
    assert found["first"] == found["again"] and found["heard"] == found["losses"]
    assert [p["name"] for p in found["parameters"]] == ["w1", "b1", "w2", "b2", "w3", "b3"]
    data, held = base64.b64decode(found["file"]), np.array(arg["images"], np.float32).reshape(-1, 1, 8, 8)[arg["held"]]
    (logits,) = onnxruntime.InferenceSession(data).run(None, {"image": held})
    assert (logits.argmax(1) == np.array(found["best"])).all()
    with TrainingSession(convolutional(), loss={"cross_entropy": "logits"}, optimizer="adam") as session:
        session.load(base64.b64decode(found["state"]))  # the same file in both languages
        assert session.evaluate({"image": held, "target": labels})["loss"] == pytest.approx(found["loss"], rel=1e-4)


def test_digits_in_pages(page: Tab, arg: dict[str, Any], native: list[float]) -> None:
    """On two threads in the isolated page, on one in the other."""
    check(page.run(TRAIN, arg), arg, native, 1e-3)


def test_digits_in_node(built: None, arg: dict[str, Any], native: list[float], tmp_path: Path) -> None:
    (tmp_path / "arg.json").write_text(json.dumps(arg))
    program = tmp_path / "train.mjs"
    program.write_text(
        f"import * as ort from {json.dumps((ROOT / 'dist/ort.node.mjs').as_uri())};\n"
        f"import {{ readFileSync }} from 'node:fs';\n"
        f"const arg = JSON.parse(readFileSync({json.dumps(str(tmp_path / 'arg.json'))}, 'utf8'));\n"
        f"const train = async () => {{ {TRAIN} }};\n"
        "console.log(JSON.stringify(await train()));\nawait ort.shutdown();\n"
    )
    done = subprocess.run(["node", program], check=True, capture_output=True, text=True, timeout=600)
    check(json.loads(done.stdout), arg, native, 1e-3)


HALVES = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const tensor = (type, Class, text, dims) => new ort.Tensor(type, new Class(bytes(text).buffer), dims);
  const executionProviders = [arg.provider];
  const session = await ort.TrainingSession.create(bytes(arg.model), { ...arg.options, executionProviders });
  const first = session.lossScale;
  await session.load(bytes(arg.checkpoint));
  const x = tensor('float16', Uint16Array, arg.x, [4, 6]);
  const step = async (name) => {
    const scale = session.lossScale;
    const { loss, applied } = await session.step({ x, target: tensor('float32', Float32Array, arg[name], [4, 3]) });
    return { scale, loss, applied };
  };
  const steps = [];
  for (const name of arg.steps) steps.push(await step(name));
  const state = await session.state();
  const last = [await step('good'), await step('good'), await step('far')];
  await session.load(state);
  const again = [await step('good'), await step('good'), await step('far')];
  const { placement } = await session.explain();
  await session.release();
  return { first, steps, last, again, placement, state: btoa(String.fromCharCode(...state)) };
"""


def check_halves(tab: Tab, provider: str) -> None:
    """The curve of double precision; steps whose gradients overflow change nothing and halve the scale, which grows
    after enough others, and which checkpoints have."""
    feeds = half_training.feeds()
    given = {
        "model": encoded(half_training.network()), "checkpoint": encoded(half_training.checkpoint()),
        "options": half_training.OPTIONS, "steps": half_training.STEPS, "provider": provider,
        "x": encoded(feeds["good"]["x"].tobytes()),
        **{name: encoded(f["target"].tobytes()) for name, f in feeds.items()},
    }  # fmt: skip
    found: Any = tab.run(HALVES, given)
    assert found["first"] == 65536 and found["placement"].keys() == {provider}
    assert [step["scale"] for step in found["steps"]] == half_training.SCALES
    assert [step["applied"] for step in found["steps"]] == half_training.APPLIED
    losses, _ = half_training.in_double([*half_training.STEPS, "good", "good"])
    steps = [*found["steps"], *found["last"][:2]]
    np.testing.assert_allclose([step["loss"] for step in steps], losses, rtol=0.01)
    assert found["last"] == found["again"] and not found["last"][2]["applied"]
    assert not [text for text in tab.warnings if "changed no weight" in text]
    with TrainingSession(half_training.network(), **half_training.OPTIONS) as session:
        session.load(base64.b64decode(found["state"]))
        assert session.loss_scale == half_training.SCALES[-1]
        assert session.step(feeds["good"]).loss == pytest.approx(losses[-2], rel=0.01)


def test_losses_of_half_floats_are_scaled(page: Tab) -> None:
    check_halves(page, "wasm")


REFUSED = """
  const model = Uint8Array.from(atob(arg.model), (c) => c.charCodeAt(0));
  const x = new ort.Tensor('float32', new Float32Array(24).fill(0.1), [4, 6]);
  const target = (labels) => new ort.Tensor('uint8', Uint8Array.from(labels), [labels.length]);
  const classes = { loss: { crossEntropy: 'y' } };
  const create = (options) => ort.TrainingSession.create(model, options);
  const errors = [];
  const textOf = (error) => `${error.name}: ${error.message}`;
  const refuse = async (work) => errors.push(await work().then(() => 'no error', textOf));
  const bad = [{}, { ...classes, trainable: 'q.*' }, { ...classes, optimizer: 'adm' }, { ...classes, optimiser: '' }];
  for (const options of bad) await refuse(() => create(options));
  const doubled = await create({ loss: { onnx: Uint8Array.from(atob(arg.loss), (c) => c.charCodeAt(0)) } });
  const plain = await create({ loss: { crossEntropy: 'y', scale: 2 } });
  const graphs = [
    (await doubled.step({ x, labels: target([0, 1, 2, 0]) })).loss,
    (await plain.step({ x, target: target([0, 1, 2, 0]) })).loss,
  ];
  await doubled.release();
  await plain.release();
  const session = await create({ ...classes, accumulate: true, clip: 1, schedule: { cosine: { steps: 10 } } });
  await refuse(() => session.apply());
  await refuse(() => session.step({ x, target: target([0, 1, 2]) }));
  await refuse(() => session.step({ x, target: target([0, 1, 2, 3]) }));
  await refuse(() => session.step({ x, target: target([0, 1, 2, 0]) }, { rate: -1 }));
  await refuse(() => session.step({ x, target: target([0, 1, 2, 0]) }, { rat: 1 }));
  await refuse(async () => session.load(new Uint8Array(9)));
  await session.accumulate({ x, target: target([0, 1, 2, 0]) });
  await session.accumulate({ x, target: target([0, 1, 2, 0]) });
  const { step, applied, rate } = await session.apply();
  const before = (await session.weights()).w1.data;
  const endless = new ort.Tensor('float32', new Float32Array(24).fill(Infinity), [4, 6]);
  const nan = await session.step({ x: endless, target: target([0, 1, 2, 0]) });
  const after = (await session.weights()).w1.data;
  const controller = new AbortController();
  controller.abort();
  await refuse(async () => session.step({ x, target: target([0, 1, 2, 0]) }, { signal: controller.signal }));
  await session.setWeights({ w1: new ort.Tensor('float32', new Float32Array(48), [6, 8]) });
  const zeros = (await session.weights()).w1.data.every((n) => n === 0);
  await refuse(() => session.freeze(['w1', 'q.*']));
  await refuse(() => session.freeze([3]));
  const frozen = [await session.freeze('w*')];
  const old = await session.weights();
  await session.step({ x, target: target([0, 1, 2, 0]) });
  const stepped = await session.weights();
  const held = Object.keys(old).filter((name) => old[name].data.every((n, i) => n === stepped[name].data[i]));
  const gradients = Object.keys(await session.gradients({ x, target: target([0, 1, 2, 0]) }));
  frozen.push(held, gradients, await session.unfreeze());
  await session.release();
  await refuse(() => session.step({ x, target: target([0, 1, 2, 0]) }));
  const same = before.every((n, i) => n === after[i]);
  return { errors, graphs, step, applied, rate, nan: nan.applied, same, zeros, frozen };
"""


CONCURRENT = """
  const model = Uint8Array.from(atob(arg.model), (c) => c.charCodeAt(0));
  const x = new ort.Tensor('float32', Float32Array.from({ length: 24 }, (_, n) => Math.sin(n)), [4, 6]);
  const batch = (n) => ({ x, target: new ort.Tensor('uint8', Uint8Array.from([n, 1, 2, 0]), [4]) });
  const data = (value) => (value instanceof ort.Tensor ? value.data : value);
  const plain = (key, value) => (ArrayBuffer.isView(data(value)) ? [...data(value)] : value);
  const calls = {
    step: (session, n) => session.step(batch(n % 3)),
    accumulate: (session, n) => session.accumulate(batch(n % 3)),
    apply: (session) => session.apply(),
    evaluate: (session, n) => session.evaluate(batch(n % 3), ['y']),
    weights: (session) => session.weights(),
    state: (session) => session.state(),
  };
  const found = [];
  for (const [accumulate, names] of arg.sequences) {
    const both = [];
    for (const waits of [true, false]) {
      const options = { loss: { crossEntropy: 'y' }, optimizer: 'sgd', accumulate };
      const session = await ort.TrainingSession.create(model, options);
      const results = [];
      for (const [n, name] of names.entries()) {
        results.push(calls[name](session, n));
        if (waits) await results[n];
      }
      both.push(JSON.stringify(await Promise.all(results), plain));
      await session.release();
    }
    found.push(both);
  }
  return found;
"""
SEQUENCES = [
    (False, ["step", "step", "step"]),
    (True, ["step", "step", "step"]),
    (True, ["accumulate", "accumulate", "apply", "step"]),
    (True, ["accumulate", "evaluate", "accumulate", "weights", "apply", "step"]),
    (False, ["evaluate", "step", "weights", "step", "evaluate", "state", "step"]),
]


def test_calls_that_do_not_wait_for_each_other(page: Tab) -> None:
    """Their results are those of calls that do."""
    found: Any = page.run(CONCURRENT, {"model": encoded(dense()), "sequences": SEQUENCES})
    for names, (awaited, at_once) in zip(SEQUENCES, found, strict=True):
        assert awaited == at_once, names


TWICE = """<ir_version: 9, opset_import: ["" : 20]> twice (float[N, 3] y, int64[N] labels) => (float loss)
    <float two = {2.0}> { l = SoftmaxCrossEntropyLoss (y, labels)  loss = Mul (l, two) }"""


def test_what_is_refused_in_pages(page: Tab) -> None:
    twice = onnx.parser.parse_model(TWICE)
    found: Any = page.run(REFUSED, {"model": encoded(dense()), "loss": encoded(twice.SerializeToString())})
    texts = [
        "InvalidInput: training needs a loss", 'no weight has a name like "q.*"', 'optimizer "adm" is not known',
        'training session has no option "optimiser"', "no gradients wait for a step", "the labels have shape",
        "target[3] is 3", "rate cannot be -1", 'step has no option "rat", only rate,signal',
        "this is no safetensors file", "AbortError",
        'no trained weight has a name like "q.*"', "names cannot be 3", "SessionFailed",
    ]  # fmt: skip
    assert len(texts) == len(found["errors"])
    for text, error in zip(texts, found["errors"], strict=True):
        assert text in error
    assert (found["step"], found["applied"], found["nan"], found["same"], found["zeros"]) == (
        1,
        True,
        False,
        True,
        True,
    )
    assert found["frozen"] == [["w1", "w2"], ["w1", "w2"], ["b1", "b2"], []]
    assert found["graphs"][0] == pytest.approx(found["graphs"][1], rel=1e-5)
    assert any("changed no weight" in text for text in page.warnings)


TRAPS = """
  const model = Uint8Array.from(atob(arg.model), (c) => c.charCodeAt(0));
  const tensor = (numbers) => new ort.Tensor('float32', Float32Array.from(numbers), [4, 6]);
  const target = new ort.Tensor('uint8', Uint8Array.from(arg.target), [4]);
  const feeds = { x: tensor(arg.x), target };
  const trigger = { x: tensor(Array(24).fill(13)), target };
  const [good, bad] = [[feeds], arg.place === 'update' ? [feeds, { rate: 13 }] : [trigger]];
  const create = () => ort.TrainingSession.create(model, { loss: { crossEntropy: 'y' }, optimizer: 'adam' });
  const told = ({ type, message }) => `${type}: ${message}`;
  await ort.boot();
  await ort.python(arg.install);
  const [stopped, other] = [await create(), await create()];
  const errors = [];
  const fail = (work) => work().then(() => errors.push('no error'), (error) => errors.push(told(error)));
  const losses = [];
  const both = async () => losses.push([(await stopped.step(...good)).loss, (await other.step(...good)).loss]);
  const fall = () => fail(() => stopped.step(...bad));
  const start = await stopped.state();
  await fall();
  if (arg.place === 'update') {
    await fail(() => stopped.step(...good));
    await stopped.load(start);
    await fall(); // the first step after load(): nothing is lost
  }
  await both(); await both();
  const checkpoint = await stopped.state();
  await fall();
  if (arg.place === 'update') {
    for (const work of ['state', 'weights', 'export']) await fail(() => stopped[work]());
    await stopped.load(checkpoint);
  }
  await both(); await both();
  const isSame = String(await stopped.state()) === String(await other.state());
  await stopped.release(); await other.release();
  return { errors, losses, isSame };
"""


@pytest.mark.parametrize("place", ["forward", "update"])
def test_kernels_that_trap_in_a_step(place: str, tab: Callable[..., Tab]) -> None:
    """Weights are as before the step, or work is refused until a checkpoint is loaded."""
    made = tab()
    made.open("/esm.html")
    feeds = batch(4)
    install = f"install{'_in_updates()' if place == 'update' else '(0)'}"
    given = {
        "model": encoded(layer()), "x": feeds["x"].ravel().tolist(), "target": feeds["target"].tolist(),
        "place": place, "install": f"{inspect.getsource(trapping_kernel)}\n{install}\n",
    }  # fmt: skip
    found: Any = made.run(TRAPS, given)
    trap, lost = "ExecutionError: ", "SessionFailed: the weights are lost"
    expected = [trap, trap] if place == "forward" else [trap, lost, trap, trap, lost, lost, lost]
    for text, error in zip(expected, found["errors"], strict=True):
        assert error.startswith(text) and ("out of bounds" in error or text == lost)
    assert found["isSame"] and all(a == b for a, b in found["losses"])
    with TrainingSession(layer(), loss={"cross_entropy": "y"}, optimizer="adam") as session:
        right = [session.step(feeds).loss for _ in range(4)]
    np.testing.assert_allclose([a for a, _ in found["losses"]], right, rtol=1e-5)


LITTLE_MEMORY = """
  const model = Uint8Array.from(atob(arg.model), (c) => c.charCodeAt(0));
  const batch = (rows) => ({
    image: new ort.Tensor('float32', Float32Array.from({ length: 1024 * rows }, (_, n) => Math.sin(n * n)),
      [rows, 1, 32, 32]),
    target: new ort.Tensor('int32', Int32Array.from({ length: rows }, (_, n) => n), [rows]),
  });
  const create = (memory) => ort.TrainingSession.create(model, {
    loss: { crossEntropy: 'logits' }, seed: 1, executionProviders: arg.providers, intraOpNumThreads: 1, memory,
  });
  const found = [];
  let memory;
  for (const share of [1, arg.share]) {
    if (share < 1) memory = Math.round(share * found[0].bytes);
    const session = await create(memory);
    const losses = [];
    for (const rows of [8, 3, 8]) losses.push((await session.step(batch(rows))).loss);
    const { loss } = await session.evaluate(batch(5));
    const { weights, peak } = await session.memory();
    found.push({ losses, loss, bytes: weights + peak });
    await session.release();
  }
  const short = await create(Math.round(memory / 4));
  const error = await short.step(batch(8)).catch(({ name, message }) => `${name}: ${message}`);
  const { applied } = await short.step(batch(1));
  await short.release();
  return { found, error, applied };
"""


def test_little_memory_in_pages(page: Tab) -> None:
    check_little_memory(page, deep(6, 8, 32), 0.6, "wasm", 0.0)


def check_little_memory(page: Tab, model: bytes, share: float, provider: str, tolerance: float) -> None:
    made: Any = page.run(LITTLE_MEMORY, {"model": encoded(model), "share": share, "providers": [provider]})
    free, bound = made["found"]
    np.testing.assert_allclose([*bound["losses"], bound["loss"]], [*free["losses"], free["loss"]], rtol=tolerance)
    assert bound["bytes"] <= round(share * free["bytes"])
    assert re.search(r"OutOfMemory: a step needs \d+ bytes, \d+ of them for weights", made["error"]) and made["applied"]


ONLY_RUNS = """
  const session = await ort.InferenceSession.create('/models/affine.onnx');
  await session.run({ x: new ort.Tensor('float32', Float32Array.from([0, 1, 2, 3]), [1, 4]) });
  await session.release();
"""


def test_pages_that_train_nothing_fetch_no_code_of_it(tab: Callable[..., Tab]) -> None:
    made = tab()
    made.open("/esm.html")
    made.run(ONLY_RUNS)
    files = sorted(url.rpartition("/")[2].split("?")[0] for url in made.requests if "/dist/" in url)
    assert "ort.mjs" in files and not [name for name in files if "training" in name or name.endswith(".zip")]
    asked = "import sys; [name for name in sys.modules if name.startswith('pyruntime.training')]"
    assert made.run("return ort.python(arg)", asked) == []
    made.run(
        REFUSED.partition("const errors")[0] + "await (await create(classes)).release();", {"model": encoded(dense())}
    )
    assert any("training.mjs" in url for url in made.requests)


REPORTS = """
  const model = Uint8Array.from(atob(arg.model), (c) => c.charCodeAt(0));
  const x = new ort.Tensor('float32', Float32Array.from(arg.x), [4, 6]);
  const target = new ort.Tensor('int32', Int32Array.from(arg.target), [4]);
  const asked = (promise) => promise.catch(({ name, message }) => `${name}: ${message}`);
  const found = [];
  for (const memory of arg.memory) {
    const session = await ort.TrainingSession.create(model, {
      loss: { crossEntropy: 'y' }, ...(memory === null ? {} : { memory }) });
    const rows = [];
    const row = async (runs) => {
      const [told, figures] = [await asked(session.explain()), await asked(session.memory())];
      const kind = figures.peak > 0 ? 'weights and peak' : 'weights';
      rows.push([told.providers?.used[0] ?? told, runs, figures.weights > 0 ? kind : figures]);
    };
    await row((await session.metrics()).runs);
    await session.step({ x, target });
    await row((await session.metrics()).runs);
    await session.release();
    await row(null);
    found.push(rows);
  }
  return found;
"""


def test_reports(page: Tab) -> None:
    feeds = batch(4)
    given = {"model": encoded(dense()), "x": feeds["x"].ravel().tolist(), "target": feeds["target"].tolist()}
    check_reports(page.run(REPORTS, {**given, "memory": MEMORY}))  # type: ignore[arg-type]
