"""`fit`, gradients without a step, and further losses, optimisers and schedules in pages: as natively."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from e2e.conftest import Tab
from e2e.test_training import encoded
from kit import torch_formulas as formulas
from kit.training_networks import convolutional, dense, digits, node, noisy_classes, of_outputs
from pyruntime import InferenceSession, TrainingSession, quantize_static

FIT = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const tensors = ({ x, target }) => ({
    x: new ort.Tensor('float32', Float32Array.from(x), [x.length / 6, 6]),
    target: new ort.Tensor('int32', Int32Array.from(target), [target.length]),
  });
  const session = await ort.TrainingSession.create(bytes(arg.model), { ...arg.options, executionProviders: ['wasm'] });
  const [train, held] = [tensors(arg.train), tensors(arg.held)];
  const heard = [];
  const callbacks = [async (result) => { heard.push(Object.keys(result).length); }];
  const whole = await session.fit(train, { epochs: 3, batchSize: 8, validation: held, callbacks });
  async function* stream() { for (const half of [train, held]) yield half; }
  const streamed = await session.fit(() => stream(), { epochs: 2, patience: null });
  const stopped = await session.fit([train, held], { epochs: 9, callbacks: [() => false] });
  const numbers = (found) => Object.fromEntries(Object.entries(found).map(([name, { data }]) => [name, [...data]]));
  const weights = numbers(await session.weights());
  const gradients = numbers(await session.gradients(held));
  let refused = '';
  try {
    await session.fit(stream(), { epochs: 2 });
  } catch (error) {
    refused = `${error.name}: ${error.message}`;
  }
  await session.release();
  return { whole, streamed, stopped: stopped.epochs.length, heard, weights, gradients, refused };
"""
PAGE = {
    "loss": {"crossEntropy": "y"}, "optimizer": {"rmsprop": {"rate": 0.02, "centered": True}}, "accumulate": True,
    "groups": [{"match": "b*", "rate": 0.01}], "noDecay": "vectors",
    "schedule": {"getLinearScheduleWithWarmup": {"numWarmupSteps": 2, "numTrainingSteps": 40}},
}  # fmt: skip
NATIVE: dict[str, Any] = {
    "loss": {"cross_entropy": "y"}, "optimizer": PAGE["optimizer"], "accumulate": True, "groups": PAGE["groups"],
    "no_decay": "vectors",
    "schedule": {"get_linear_schedule_with_warmup": {"num_warmup_steps": 2, "num_training_steps": 40}},
}  # fmt: skip


def test_fit(page: Tab) -> None:
    train, held = noisy_classes(35), noisy_classes(20, 1)
    lists = [{name: x.ravel().tolist() for name, x in feeds.items()} for feeds in (train, held)]
    found = page.run(FIT, {"model": encoded(dense()), "options": PAGE, "train": lists[0], "held": lists[1]})
    with TrainingSession(dense(), **NATIVE) as s:
        whole = s.fit(train, epochs=3, batch_size=8, validation=held)
        streamed = s.fit(lambda _: iter([train, held]), epochs=2)
        s.fit([train, held], epochs=9, callbacks=[lambda _: False])
        for ours, theirs in ((whole, found["whole"]), (streamed, found["streamed"])):
            assert ours.best == theirs["best"]
            for a, b in zip(ours.epochs, theirs["epochs"], strict=True):
                assert b["loss"] == pytest.approx(a.loss, rel=1e-4) and b["rate"] == pytest.approx(a.rate)
                assert (b["validation"] is None) == (a.validation is None) and b["steps"] == a.steps
        assert found["stopped"] == 1 and found["heard"] == ([5] * 5 + [6]) * 3
        for name, w in s.weights().items():
            np.testing.assert_allclose(found["weights"][name], w.ravel(), rtol=1e-3, atol=1e-4)
        for name, g in s.gradients(held).items():
            np.testing.assert_allclose(found["gradients"][name], g.ravel(), rtol=1e-2, atol=1e-4)
    assert found["refused"].startswith("InvalidInput: the data had no batch in epoch 2")


STEPS = """
  const model = Uint8Array.from(atob(arg), (c) => c.charCodeAt(0));
  const target = (labels) => new ort.Tensor('uint8', Uint8Array.from(labels), [4]);
  const number = (n, i) => (n === 5 && i === 3 ? NaN : Math.sin(n + i));
  const batch = (n) => ({
    x: new ort.Tensor('float32', Float32Array.from({ length: 24 }, (_, i) => number(n, i)), [4, 6]),
    target: target([0, 1, 2, n === 30 ? 3 : 0]),
  });
  const batches = Array.from({ length: 32 }, (_, n) => batch(n));
  const schedule = { exponential: { every: 2, factor: 0.9 } };
  const options = { loss: { crossEntropy: 'y' }, schedule, executionProviders: ['wasm'] };
  const create = () => ort.TrainingSession.create(model, options);
  const sessions = [await create(), await create()];
  const kept = async (session) => [...(await session.weights()).w1.data];
  const both = [];
  for (const [n, session] of sessions.entries()) {
    const results = [];
    const errors = [];
    const make = async (first, last) => {
      const some = batches.slice(first, last);
      if (n) return results.push(...await session.steps(some));
      for (const one of some) results.push(await session.step(one));
    };
    await make(0, 12);
    const [{ runs }, weights] = [await session.metrics(), await kept(session)];
    await session.freeze('w2');
    await make(12, 28);
    await make(28, 32).catch((error) => errors.push(`${error.name}: ${error.message}`));
    await session.unfreeze();
    await session.step(batch(40));
    both.push({ results, errors, runs, weights: [weights, await kept(session)] });
  }
  const refused = [];
  const controller = new AbortController();
  controller.abort();
  for (const work of [() => sessions[1].steps(3), () => sessions[1].steps(batches, { signal: controller.signal })]) {
    await work().catch((error) => refused.push(error.name));
  }
  const fits = []; // calls whose callbacks hear of each step make one at a time
  for (const callbacks of [[], [() => {}]]) {
    const session = await create();
    fits.push(await session.fit(batches.slice(0, 29), { epochs: 3, callbacks }), await kept(session));
  }
  const plain = (key, value) => (Number.isNaN(value) ? 'NaN' : value);
  return JSON.parse(JSON.stringify({ both, fits, refused, none: await sessions[1].steps([]) }, plain));
"""


def test_steps_with_several_batches(page: Tab) -> None:
    """As calls of `step`: with masks of Dropout, a batch that is not finite, and one with a wrong label."""
    found: Any = page.run(STEPS, encoded(dense(extra=[node("Dropout", "a", "b")])))
    one, several = found["both"]
    # of the last call, the results before the error are lost
    assert several["results"] == one["results"][:28] and len(one["results"]) == 30
    assert [r["applied"] for r in one["results"]].count(False) == 1 and not one["results"][5]["applied"]
    assert several["runs"] == one["runs"] == 12 and several["weights"] == one["weights"]
    assert (
        several["errors"] == [one["errors"][0].replace(": ", ": batch 3: ", 1)] and "target[3] is 3" in one["errors"][0]
    )
    assert found["fits"][:2] == found["fits"][2:] and [e["steps"] for e in found["fits"][0]["epochs"]] == [28] * 3
    assert found["refused"] == ["InvalidInput", "AbortError"] and found["none"] == []


LOSSES = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const array = (type) => (type === 'int32' ? Int32Array : Float32Array);
  const tensor = ([type, data, dims]) => new ort.Tensor(type, array(type).from(data), dims);
  const losses = [];
  for (const { model, options, feeds } of arg) {
    const session = await ort.TrainingSession.create(bytes(model), { ...options, executionProviders: ['wasm'] });
    const given = Object.fromEntries(Object.entries(feeds).map(([name, feed]) => [name, tensor(feed)]));
    losses.push((await session.step(given)).loss);
    await session.release();
  }
  return losses;
"""
CAMEL = {"cross_entropy": "crossEntropy", "pos_weight": "posWeight", "batch_first": "batchFirst"}


def test_losses(page: Tab) -> None:
    """One of each kind."""
    cases = {case[0]: case for case in formulas.LOSSES}.values()
    given = []
    for kind, settings, outputs, feeds, *_ in cases:
        names = [f"y{n}" for n in range(len(outputs))]
        loss = {kind: names if len(names) > 1 else names[0], **settings}
        named = dict(zip(["target", "input_lengths", "target_lengths"], feeds, strict=False))
        given.append({
            "model": encoded(of_outputs(outputs)), "options": {"loss": {CAMEL.get(k, k): v for k, v in loss.items()}},
            "feeds": {"one": ["float32", [1], []], **{
                name: ["float32" if x.dtype.kind == "f" else "int32", x.ravel().tolist(), [*x.shape]]
                for name, x in named.items()}},
        })  # fmt: skip
    expected = [formula(*outputs, *feeds) for _, _, outputs, feeds, formula, _ in cases]
    np.testing.assert_allclose(page.run(LOSSES, given), expected, rtol=1e-5)


SCALES = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const options = { loss: { crossEntropy: 'logits' }, scales: 'lsq', executionProviders: ['wasm'] };
  const session = await ort.TrainingSession.create(bytes(arg.model), options);
  const image = new ort.Tensor('float32', Float32Array.from(arg.image), arg.dims);
  const target = new ort.Tensor('int32', Int32Array.from(arg.target), [arg.dims[0]]);
  const losses = [];
  for (let n = 0; n < 4; n += 1) losses.push((await session.step({ image, target })).loss);
  const inference = await ort.InferenceSession.create(await session.export());
  const logits = [...(await inference.run({ image })).logits.data];
  const names = (await session.parameters()).map(({ name }) => name);
  await session.release();
  return { losses, logits, names };
"""


def test_scales_of_quantisation(page: Tab) -> None:
    images, labels, *_ = digits()
    image, target = images[:8], labels[:8]
    model = quantize_static(convolutional(), [{"image": image}], trainable=True).to_bytes()
    given = {"model": encoded(model), "image": image.ravel().tolist(), "dims": image.shape, "target": target.tolist()}
    found = page.run(SCALES, given)
    with TrainingSession(model, loss={"cross_entropy": "logits"}, scales="lsq") as s:
        losses = [s.step({"image": image, "target": target}).loss for _ in range(4)]
        assert found["names"] == [p.name for p in s.parameters()]
        logits = InferenceSession(s.export()).run(None, {"image": image})[0].ravel()
    np.testing.assert_allclose(found["losses"], losses, rtol=1e-4)
    np.testing.assert_allclose(found["logits"], logits, atol=0.05 * np.abs(logits).max())  # there biases are floats


DISTILLED = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const loss = { distill: 'logits', teacher: bytes(arg.teacher), temperature: 4, alpha: 0.3 };
  const session = await ort.TrainingSession.create(bytes(arg.model), { loss, executionProviders: ['wasm'] });
  const image = new ort.Tensor('float32', Float32Array.from(arg.image), arg.dims);
  const target = new ort.Tensor('int32', Int32Array.from(arg.target), [arg.dims[0]]);
  const { epochs } = await session.fit({ image, target }, { epochs: 3, batchSize: 4 });
  await session.release();
  return epochs.map(({ loss }) => loss);
"""


def test_distillation(page: Tab) -> None:
    images, labels, *_ = digits()
    image, target, small, teacher = images[:8], labels[:8], convolutional(), convolutional(2)
    given = {"image": image.ravel().tolist(), "dims": image.shape, "target": target.tolist()}
    found = page.run(DISTILLED, {**given, "model": encoded(small), "teacher": encoded(teacher)})
    loss = {"distill": "logits", "teacher": teacher, "temperature": 4, "alpha": 0.3}
    with TrainingSession(small, loss=loss) as s:
        epochs = s.fit({"image": image, "target": target}, epochs=3, batch_size=4).epochs
    np.testing.assert_allclose(found, [epoch.loss for epoch in epochs], rtol=1e-4)
