"""Adapters in a page, on its GPU, in Node.js and in Pyodide: trained as natively, exported, several in one session."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from playwright.sync_api import Browser

import pyruntime
from e2e.conftest import Tab
from e2e.stock_pyodide import run_in_worker
from kit.adapter_networks import Decoder, peft, texts, with_inputs
from kit.chromium import ROOT
from kit.peft_steps import ALPHA, RANK, RATE, VECTORS
from kit.peft_steps import STEPS as STEPS_PEFT
from pyruntime import RunOptions, SessionOptions, TrainingSession
from pyruntime.program.format import Program
from pyruntime.training.files import onnx_adapter, safetensors
from pyruntime.training.files.onnx_adapter import Versions
from pyruntime.training.files.safetensors import Stored

LORA = {"rank": 4, "alpha": 8, "targets": ["q_proj", "*/mlp/*"]}
OPTIONS = {"loss": {"cross_entropy": "logits"}, "optimizer": {"adam": {"rate": 0.01}}, "lora": LORA, "seed": 3}
KINDS = ("float32", "float16", "4 bits")
STEPS = 12

WORK = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const text = (data) => btoa(Array.from(new Uint8Array(data), (c) => String.fromCharCode(c)).join(''));
  const ints = (values) => (
    new ort.Tensor('int64', BigInt64Array.from(values.flat(), BigInt), [values.length, values[0].length]));
  const ids = ints(arg.ids);
  const trained = [];
  for (const model of arg.models) {
    const session = await ort.TrainingSession.create(bytes(model), arg.options);
    const losses = [];
    for (let n = 0; n < arg.steps; n++) losses.push((await session.step({ ids, target: ints(arg.after) })).loss);
    const [adapter, merged] = [text(await session.adapter()), text(await session.export())];
    trained.push({ losses, adapter, merged, names: session.parameters().map(({ name }) => name) });
    await session.release();
  }
  const [float32, , bits] = arg.models;
  const three = { file: bytes(arg.plain), config: arg.config };
  const adapters = { one: bytes(arg.one), two: new Blob([bytes(arg.two)]), three };
  const runs = [];
  const opened = await ort.InferenceSession.create(bytes(float32), { adapters });
  const program = await opened.export();
  await opened.release();
  for (const model of [bytes(float32), bytes(bits), program]) {
    const session = await ort.InferenceSession.create(model, { adapters });
    const results = [];
    const times = [];
    for (const active of [undefined, ...arg.active, undefined]) {
      const start = performance.now();
      const options = active === undefined ? [] : [['logits'], { adapters: active }];
      const { logits } = await session.run({ ids }, ...options);
      times.push(performance.now() - start);
      results.push([...logits.data]);
    }
    const batcher = new Batcher(session, { size: 8, wait: 50 });
    const asked = [null, ...arg.active, undefined, arg.active[0]];
    const batched = await Promise.all(asked.map((active) => batcher.run({ ids }, { adapters: active })));
    const expected = [...results, results[1]];
    const agrees = batched.every(({ logits }, n) => logits.data.every((x, i) => Math.abs(x - expected[n][i]) < 2e-4));
    await session.prepare({ dims: { N: 2, T: 3 } });
    const { compiled } = await session.metrics();
    runs.push({ results, times, agrees, inputs: [...session.inputNames], compiled });
    await session.release();
  }
  const bare = await ort.InferenceSession.create(program);
  const plain = [[...bare.inputNames], [...(await bare.run({ ids })).logits.data]];
  await bare.release();
  const x = new ort.Tensor('float32', Float32Array.from({ length: 12 }, (_, n) => n / 12), [2, 6]);
  const own = { a: bytes(arg.theirs), b: bytes(arg.peftSlots) };
  const slots = await ort.InferenceSession.create(bytes(arg.slots), { adapters: own });
  const slotProgram = await slots.export();
  const exportedSlots = await ort.InferenceSession.create(slotProgram, { adapters: own });
  const slotRuns = [];
  for (const session of [slots, exportedSlots]) {
    for (const active of [[], 'a', ['b'], { a: 1, b: -1 }]) {
      slotRuns.push([...(await session.run({ x }, { adapters: active })).y.data]);
    }
  }
  const slotNames = [...slots.inputNames, ...exportedSlots.inputNames];
  const errors = [];
  const textOf = (error) => `${error.name}: ${error.message}`;
  const refuse = async (work) => errors.push(await work().then(() => 'no error', textOf));
  await refuse(() => slots.run({ x }, { adapters: ['c'] }));
  await refuse(() => slots.run({ x }, { adapters: { a: NaN } }));
  const open = (file, bad) => ort.InferenceSession.create(file, { adapters: { bad } });
  const regular = { file: bytes(arg.plain), config: { lora_alpha: 1, alpha_pattern: { 'q_(a+)+': 2 } } };
  const without = await (await ort.InferenceSession.create(bytes(float32))).export();
  await refuse(() => open(without, bytes(arg.one)));
  for (const bad of [bytes(arg.other), regular, bytes(arg.narrow)]) await refuse(() => open(program, bad));
  for (const damaged of arg.damaged) await refuse(() => open(bytes(damaged), bytes(arg.one)));
  for (const bad of [new Uint8Array(9), bytes(arg.theirs).subarray(0, 90), bytes(arg.other)]) {
    await refuse(() => ort.InferenceSession.create(bytes(float32), { adapters: { bad } }));
  }
  await refuse(() => ort.TrainingSession.create(bytes(float32), { ...arg.options, lora: { targets: 'nothing' } }));
  await slots.release();
  return { trained, runs, plain, slotRuns, slotNames, errors };
"""
ACTIVE = ["one", ["two"], {"one": 0.5, "two": -1.0}, ["three"], ["one", "two"], ["three"]]


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def stored(tensors: dict[str, np.ndarray], kind: str = "float32") -> dict[str, Stored]:
    found = {n: np.ascontiguousarray(x, kind) for n, x in tensors.items()}
    return {n: Stored(kind, x.shape, x) for n, x in found.items()}


def safe(tensors: dict[str, Stored], config: Any = None) -> bytes:
    return safetensors.write(tensors, {} if config is None else {"adapter_config": json.dumps(config)})


def damaged(adapter: bytes) -> list[bytes]:
    """Programs whose places for adapters are outside of their inputs, or no tables."""
    options = SessionOptions()
    options.adapters = {"one": adapter}
    program = Program.from_bytes(pyruntime.InferenceSession(Decoder().build(), options).export(weights=True))
    places = program.header["types"]["adapters"]
    next(iter(places["modules"].values()))[0][0] += 10_000
    outside = program.to_bytes()
    places["slots"] = None
    return [outside, program.to_bytes()]


@pytest.fixture(scope="module")
def arg() -> dict[str, Any]:
    rng, (ids, after) = np.random.default_rng(1), texts(4, 8)
    one, two, three = peft(rng, 4), peft(rng, 2, layers=1, parts="qkvo"), peft(rng, 3)
    slot = "layers.0.attn.q_proj.lora_{}.MatMul.weight"
    theirs = {slot.format("A"): rng.normal(size=(6, 2)), slot.format("B"): rng.normal(size=(2, 5))}
    own = {"q_proj.lora_A.weight": rng.normal(size=(3, 6)), "q_proj.lora_B.weight": rng.normal(size=(5, 3))}
    own = {f"base_model.model.layers.0.self_attn.{n}": x for n, x in own.items()}
    files = {
        "one": safe(stored(one), {"r": 4, "lora_alpha": 8}),
        "two": onnx_adapter.write(stored(two, "float16"), Versions()),
        "plain": safe(stored(three)), "theirs": onnx_adapter.write(stored(theirs), Versions()),
        "peftSlots": safe(stored(own), {"r": 3, "lora_alpha": 6}), "slots": with_inputs(),
        "other": safe(stored({n.replace("q_proj", "zz"): x for n, x in one.items()})),
        "narrow": safe(stored({n: x[:, :3] if "lora_A" in n else x for n, x in one.items()})),
    }  # fmt: skip
    camel = {**OPTIONS, "loss": {"crossEntropy": "logits"}}
    return {
        **{name: encoded(data) for name, data in files.items()}, "ids": ids.tolist(), "after": after.tolist(),
        "damaged": [encoded(data) for data in damaged(files["one"])],
        "models": [encoded(Decoder(kind).build()) for kind in KINDS], "options": camel, "steps": STEPS,
        "config": {"r": 3, "lora_alpha": 3, "use_rslora": True}, "active": ACTIVE,
    }  # fmt: skip


def decoded(arg: dict[str, Any], name: str) -> bytes:
    return base64.b64decode(arg[name])


def check_training(found: Any, arg: dict[str, Any]) -> None:
    """Curves and adapters as natively; merged models that onnxruntime runs."""
    ids, after = np.array(arg["ids"]), np.array(arg["after"])
    for kind, one, data in zip(KINDS, found, arg["models"], strict=True):
        model = base64.b64decode(data)
        with TrainingSession(model, **OPTIONS) as native:
            losses = [native.step({"ids": ids, "target": after}).loss for _ in range(STEPS)]
            wanted = native.evaluate({"ids": ids}, ["logits"])["logits"]
            assert one["names"] == [p.name for p in native.parameters()]
            tensors, metadata = safetensors.read(base64.b64decode(one["adapter"]))
            assert json.loads(metadata["adapter_config"])["lora_alpha"] == 8 and [*tensors] == one["names"]
        near = 0.05 if kind == "float16" else 2e-3
        np.testing.assert_allclose(one["losses"], losses, rtol=near)
        assert one["losses"][-1] < one["losses"][0] * 0.7
        merged = base64.b64decode(one["merged"])
        (logits,) = onnxruntime.InferenceSession(merged).run(None, {"ids": ids})
        np.testing.assert_allclose(logits, wanted, atol=near * float(np.abs(wanted).max()))


def check_runs(found: Any, arg: dict[str, Any]) -> None:
    """Each combination as natively, in one Program; the last of an exported file."""
    ids = np.array(arg["ids"])
    for kind, one in zip((0, 2, 0)[: len(found)], found, strict=True):
        options = SessionOptions()
        options.adapters = {
            "one": decoded(arg, "one"), "two": decoded(arg, "two"),
            "three": pyruntime.LoraAdapter(decoded(arg, "plain"), json.dumps(arg["config"])),
        }  # fmt: skip
        native = pyruntime.InferenceSession(base64.b64decode(arg["models"][kind]), options)
        for active, result in zip([(), *ACTIVE, ()], one["results"], strict=True):
            run_options = RunOptions()
            weights = {active: 1} if isinstance(active, str) else active
            weights = weights if isinstance(weights, dict) else dict.fromkeys(weights, 1)
            for name, weight in weights.items():
                run_options.add_active_adapter(name, weight)
            (wanted,) = native.run(None, {"ids": ids}, run_options)
            np.testing.assert_allclose(np.reshape(result, wanted.shape), wanted, atol=1e-3)
        assert one["inputs"] == ["ids"] and one["compiled"] <= 1 and one.get("agrees", True)
        assert max(one["times"][1:]) < 1000


def check(found: Any, arg: dict[str, Any]) -> None:
    check_training(found["trained"], arg)
    check_runs(found["runs"], arg)
    check_slots(found, arg, 2)
    inputs, logits = found["plain"]
    assert inputs == ["ids"] and logits == found["runs"][2]["results"][0]
    errors = (
        'no adapter "c"', "cannot be NaN", "exported without places for adapters", 'no place for "base_model',
        "is a regular expression", 'does not fit "layers.0.attn.q_proj": it is 64 to 64',
        *["InvalidModel: the program is damaged"] * 2, "its header is not JSON", "damaged",
        'no product for "base_model', 'no product has a name like "nothing"',
    )  # fmt: skip
    assert len(errors) == len(found["errors"])
    for text, error in zip(errors, found["errors"], strict=True):
        assert error.startswith("Invalid") and text in error, error


def check_slots(found: Any, arg: dict[str, Any], sessions: int) -> None:
    """A model with inputs for adapters. sessions: of the model, and of a Program"""
    options = SessionOptions()
    options.adapters = {"a": decoded(arg, "theirs"), "b": decoded(arg, "peftSlots")}
    native = pyruntime.InferenceSession(decoded(arg, "slots"), options)
    x = (np.arange(12, dtype=np.float32) / 12).reshape(2, 6)
    for weights, result in zip(({}, {"a": 1}, {"b": 1}, {"a": 1, "b": -1}) * sessions, found["slotRuns"], strict=True):
        run_options = RunOptions()
        for name, weight in weights.items():
            run_options.add_active_adapter(name, weight)
        np.testing.assert_allclose(np.reshape(result, (2, 5)), native.run(None, {"x": x}, run_options)[0], atol=1e-5)
    assert found["slotNames"] == ["x"] * sessions


def test_adapters_in_a_page(page: Tab, arg: dict[str, Any]) -> None:
    check(page.run("const { Batcher } = await import('/dist/extras.mjs');" + WORK, arg), arg)


def test_adapters_in_node(built: None, arg: dict[str, Any], tmp_path: Path) -> None:
    """The same, then adapters by the names of files, PEFT's configuration beside its weights."""
    (tmp_path / "arg.json").write_text(json.dumps(arg))
    (tmp_path / "adapter_model.safetensors").write_bytes(decoded(arg, "plain"))
    (tmp_path / "adapter_config.json").write_text(json.dumps(arg["config"]))
    (tmp_path / "model.onnx").write_bytes(base64.b64decode(arg["models"][0]))
    program = tmp_path / "run.mjs"
    program.write_text(
        f"import * as ort from {json.dumps((ROOT / 'dist/ort.node.mjs').as_uri())};\n"
        f"import {{ Batcher }} from {json.dumps((ROOT / 'dist/extras.mjs').as_uri())};\n"
        f"import {{ readFileSync }} from 'node:fs';\n"
        f"const arg = JSON.parse(readFileSync({json.dumps(str(tmp_path / 'arg.json'))}, 'utf8'));\n"
        f"const work = async () => {{ {WORK} }};\n"
        "const found = await work();\n"
        "const adapters = { a: 'adapter_model.safetensors' };\n"
        "const session = await ort.InferenceSession.create('model.onnx', { adapters });\n"
        "const data = BigInt64Array.from(arg.ids.flat(), BigInt);\n"
        "const ids = new ort.Tensor('int64', data, [arg.ids.length, arg.ids[0].length]);\n"
        "found.file = [...(await session.run({ ids }, { adapters: 'a' })).logits.data];\n"
        "console.log(JSON.stringify(found));\nawait ort.shutdown();\n"
    )
    done = subprocess.run(
        ["node", program], capture_output=True, text=True, timeout=600, cwd=tmp_path, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    check(found, arg)
    np.testing.assert_allclose(found["file"], found["runs"][0]["results"][4], atol=1e-5)


PEFT = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const text = (data) => btoa(Array.from(new Uint8Array(data), (c) => String.fromCharCode(c)).join(''));
  const tensor = ([data, dims]) => new ort.Tensor('float32', Float32Array.from(data), dims);
  const [x, target] = [tensor(arg.x), tensor(arg.target)];
  const options = { ...arg.options, executionProviders: arg.providers };
  const training = await ort.TrainingSession.create(bytes(arg.model), options);
  const start = text(await training.adapter());
  await training.load(bytes(arg.start));
  const losses = [];
  for (let n = 0; n < arg.steps; n++) losses.push((await training.step({ x, target })).loss);
  const [adapter, merged] = [text(await training.adapter()), text(await training.export())];
  await training.release();
  const adapters = { theirs: { file: bytes(arg.after), config: arg.config } };
  const outputs = [];
  let file = bytes(arg.model);
  for (let n = 0; n < 2; n++) {
    const session = await ort.InferenceSession.create(file, { adapters, executionProviders: arg.providers });
    for (const active of ['theirs', []]) outputs.push([...(await session.run({ x }, { adapters: active })).y.data]);
    if (!n) file = await session.export({ providers: arg.providers });
    await session.release();
  }
  return { start, losses, adapter, merged, outputs };
"""
DORA = "convolutions, DoRA"


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
def test_dora_and_convolutions_as_in_peft(tab: Callable[..., Tab], provider: str) -> None:
    """Losses, tensors after the steps, the saved file, the merged model and runs with PEFT's file equal what
    kit/peft_steps.py got from PEFT and stored."""
    with np.load(VECTORS) as data:
        known = {key.partition("/")[2]: data[key] for key in data.files if key.startswith(f"{DORA}/")}
    lora = {"rank": RANK, "alpha": ALPHA, "dora": True}
    arg = {name: [known[name].ravel().tolist(), known[name].shape] for name in ("x", "target")} | {
        "model": encoded(known["model"]), "start": encoded(known["start"]),
        "after": encoded(known[f"after {STEPS_PEFT}"]),
        "config": json.loads(known["config"].tobytes()), "steps": STEPS_PEFT, "providers": [provider],
        "options": {"loss": {"mse": "y"}, "optimizer": {"adamw": {"rate": RATE}}, "lora": lora},
    }  # fmt: skip
    made = tab()
    made.open("/esm.html")
    found: Any = made.run(PEFT, arg)
    near = {"rtol": 1e-3, "atol": 2e-4} if provider == "webgpu" else {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(found["losses"], known["losses"], **near)
    theirs, own = (safetensors.read(data)[0] for data in (known["start"].tobytes(), base64.b64decode(found["start"])))
    assert {n: t.shape for n, t in own.items()} == {n: t.shape for n, t in theirs.items()}
    lengths = [n for n in own if "magnitude" in n]
    assert len(lengths) == 4 and all(
        np.allclose(*(np.frombuffer(side[n].data, np.float32) for side in (own, theirs)), rtol=1e-6) for n in lengths
    )
    ours, after = (
        safetensors.read(data)[0]
        for data in (base64.b64decode(found["adapter"]), known[f"after {STEPS_PEFT}"].tobytes())
    )
    for name, t in after.items():
        np.testing.assert_allclose(*(np.frombuffer(x.data, np.float32) for x in (ours[name], t)), **near)
    merged = onnxruntime.InferenceSession(base64.b64decode(found["merged"]))
    np.testing.assert_allclose(merged.run(["y"], {"x": known["x"]})[0], known["y"], **near)
    plain = onnxruntime.InferenceSession(known["model"].tobytes()).run(None, {"x": known["x"]})[0]
    for output, wanted in zip(found["outputs"], [known["y"], plain] * 2, strict=True):
        np.testing.assert_allclose(np.reshape(output, wanted.shape), wanted, **near)


GPU = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const ids = new ort.Tensor('int64', BigInt64Array.from(arg.ids.flat(), BigInt), [arg.ids.length, arg.ids[0].length]);
  const three = { file: bytes(arg.plain), config: arg.config };
  const options = {
    adapters: { one: bytes(arg.one), two: bytes(arg.two), three }, preferredOutputLocation: 'gpu-buffer',
    executionProviders: ['webgpu'],
  };
  const runs = [];
  const files = [bytes(arg.models[0]), bytes(arg.models[2])];
  for (let n = 0; n < 3; n++) {
    const session = await ort.InferenceSession.create(files[n], options);
    const [results, times] = [[], []];
    for (const active of [[], ...arg.active, []]) {
      const start = performance.now();
      const { logits } = await session.run({ ids }, { adapters: active });
      results.push([...await logits.getData(true)]);
      times.push(performance.now() - start);
    }
    const { placement, providers } = await session.explain();
    const inputs = [...session.inputNames];
    runs.push({ results, times, inputs, compiled: 0, used: providers.used, placement: Object.keys(placement) });
    await session.release();
    if (n) continue;
    const exporting = await ort.InferenceSession.create(files[0], { adapters: options.adapters });
    files.push(await exporting.export({ providers: ['webgpu'] }));
  }
  return runs;
"""


def test_adapters_on_the_pages_gpu(tab: Callable[..., Tab], arg: dict[str, Any]) -> None:
    made = tab()
    made.open("/esm.html")
    runs: Any = made.run(GPU, arg)
    check_runs(runs, arg)
    assert [[one["used"][0], "webgpu" in one["placement"]] for one in runs] == [["webgpu", True]] * 3


def test_adapters_in_pyodide(
    browser: Browser, built: None, arg: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    models = tmp_path_factory.mktemp("models")
    (models / "adapter_model.safetensors").write_bytes(decoded(arg, "plain"))
    (models / "adapter_config.json").write_text(json.dumps(arg["config"]))
    found = run_in_worker(browser, tmp_path_factory.mktemp("page"), models, "adapters_in_pyodide.py", json.dumps(arg))
    check_runs(found["runs"], arg)
    check_slots(found, arg, 1)
    errors = (
        'no adapter "b"', "no place for", "has no option terminate", "call Load(path) first", "its header is not JSON",
        'no product for "base_model', "run_options cannot be of type dict", "adapters cannot be 3",
    )  # fmt: skip
    for text, error in zip(errors, found["errors"], strict=True):
        assert error and error.startswith("InvalidInput") and text in error, error
