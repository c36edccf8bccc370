"""Losses and optimisers that are JavaScript functions, beside formulas (kit/traced_cases.py); averages of weights."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from e2e.conftest import Server, Tab, new_tab
from e2e.test_training import encoded
from kit import torch_formulas as formulas
from kit import traced_cases as cases
from kit.training_networks import batch, dense, of_outputs, with_gradient
from pyruntime import TrainingSession

HELPERS = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const array = (type) => (type === 'int32' ? Int32Array : Float32Array);
  const tensor = ([type, data, dims]) => new ort.Tensor(type, array(type).from(data), dims);
  const tensors = (feeds) => Object.fromEntries(Object.entries(feeds).map(([name, feed]) => [name, tensor(feed)]));
  const numbers = (found) => Object.fromEntries(Object.entries(found).map(([name, { data }]) => [name, [...data]]));
  const executionProviders = arg.providers ?? ['wasm'];
  const open = (model, options) => ort.TrainingSession.create(bytes(model), { ...options, executionProviders });
"""


@pytest.fixture(scope="module")
def gpu_page(browser: Browser, servers: dict[str, Server]) -> Iterator[Tab]:
    tab = new_tab(browser, servers["isolated"])
    tab.open("/esm.html")
    tab.run("await ort.boot();")
    yield tab
    tab.page.context.close()


def fed(x: np.ndarray) -> list[Any]:
    return ["float32" if x.dtype.kind == "f" else "int32", x.ravel().tolist(), [*x.shape]]


LOSSES = """
  const found = [];
  for (const [n, loss] of functions.entries()) {
    const session = await open(arg.cases[n].model, { loss, optimizer: { sgd: { rate: 1 } } });
    const before = numbers(await session.weights());
    const { loss: value } = await session.step(tensors(arg.cases[n].feeds));
    const after = numbers(await session.weights());
    found.push([value, Object.keys(after).map((name) => after[name].map((w, m) => before[name][m] - w))]);
    await session.release();
  }
  return found;
"""


@pytest.mark.parametrize("providers", [["wasm"], ["webgpu"]], ids=str)
def test_losses(gpu_page: Tab, providers: list[str]) -> None:
    own = [{"model": encoded(of_outputs(c.outputs)),
            "feeds": {"one": ["float32", [1], []], **{n: fed(x) for n, x in c.feeds.items()}}}
           for c in cases.LOSSES]  # fmt: skip
    functions = f"const functions = [{', '.join(c.javascript for c in cases.LOSSES)}];"
    found = gpu_page.run(HELPERS + functions + LOSSES, {"cases": own, "providers": providers})
    for case, (loss, gradients) in zip(cases.LOSSES, found, strict=True):
        assert loss == pytest.approx(case.formula(*case.outputs, *case.feeds.values()), rel=1e-5), case.name
        expected = formulas.slopes(case.formula, case.outputs, [*case.feeds.values()])
        for g, wanted in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(g, wanted.ravel(), rtol=2e-4, atol=2e-6)


UPDATES = """
  const found = [];
  for (const [n, update] of functions.entries()) {
    let session = await open(arg.model, { loss: 'y', optimizer: { function: { update, ...arg.settings[n] } } });
    for (const [k, g] of arg.gradients.entries()) {
      if (k === 12) {
        const state = await session.state();
        await session.release();
        session = await open(arg.model, { loss: 'y', optimizer: { function: { update, ...arg.settings[n] } } });
        await session.load(state);
      }
      await session.step({ g: tensor(g) });
    }
    found.push((await session.weights()).w.data);
    await session.release();
  }
  return found.map((data) => [...data]);
"""


@pytest.mark.parametrize("providers", [["wasm"], ["webgpu"]], ids=str)
def test_optimisers(gpu_page: Tab, providers: list[str]) -> None:
    w = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    functions = f"const functions = [{', '.join(c.javascript for c in cases.UPDATES)}];"
    arg = {"model": encoded(with_gradient(w)), "settings": [c.settings for c in cases.UPDATES], "providers": providers,
           "gradients": [fed(g) for g in formulas.gradients()]}  # fmt: skip
    found = gpu_page.run(HELPERS + functions + UPDATES, arg)
    for case, data in zip(cases.UPDATES, found, strict=True):
        *_, expected = case.formula(w.astype(np.float64), formulas.gradients())
        np.testing.assert_allclose(data, expected.ravel(), rtol=1e-4, atol=1e-5, err_msg=case.name)


REFUSED = [
    ("(o) => o.y.square()", "has 2 axes; a loss is a single number"),
    ("(o) => (o.y.mean() > 0 ? o.y.mean() : o.y.sum())", "has no value"),
    ("(o) => `${o.y.mean()}`", "has no value"),
    ("(o) => [...o.y][0]", "has no value"),
    ("(o) => o.y.logsumexp()", 'no method "logsumexp"'),
    ("() => 3", "returned 3"),
    ("(o) => o.z.mean()", 'output "z" does not exist'),
    ("(o, t) => o.y.mean().add(t.target.mean())", 'how many axes the label "target"'),
    ("(o) => o.y.mul(Infinity).mean()", "cannot compute with Infinity"),
    ("(o) => o.y.sum(1.5)", "axes of sum cannot be 1.5"),
    ("(o) => o.y.add().mean()", "add takes 1 arguments, not 0"),
    ("(o) => o.y.oneHot().mean()", "one_hot needs classes"),
    ("(o) => { o.y = 1; return o.y.mean(); }", "cannot be set"),
]  # fmt: skip


def test_losses_that_are_refused(page: Tab) -> None:
    texts = page.run(
        HELPERS + f"const functions = [{', '.join(text for text, _ in REFUSED)}];" + """
        const refusal = (e) => `${e.name}: ${e.message}`;
        return Promise.all(functions.map((loss) => open(arg.model, { loss }).then(() => 'opened', refusal)));
        """, {"model": encoded(dense())},
    )  # fmt: skip
    for (function, message), text in zip(REFUSED, texts, strict=True):
        assert text.startswith("InvalidInput") and message in text, (function, text)


AVERAGES = """
  const session = await open(arg.model, { loss: { crossEntropy: 'y' }, optimizer: 'adafactor', ema: 0.8 });
  const losses = [];
  for (let n = 0; n < 6; n += 1) losses.push((await session.step(tensors(arg.feeds))).loss);
  const evaluated = (await session.evaluate(tensors(arg.feeds), [], { average: true })).loss;
  const weights = numbers(await session.weights({ average: true }));
  const file = await session.export({ average: true });
  const inference = await ort.InferenceSession.create(file);
  const y = [...(await inference.run({ x: tensor(arg.feeds.x) })).y.data];
  const own = numbers(await session.weights());
  const state = await session.state();
  await session.release();
  const plain = await open(arg.model, { loss: { crossEntropy: 'y' } });
  const refused = await plain.weights({ average: true }).catch((e) => e.message);
  await plain.release();
  return { losses, evaluated, weights, own, y, refused, state: btoa(String.fromCharCode(...state)) };
"""


def test_averages(page: Tab) -> None:
    feeds = batch(8)
    found = page.run(HELPERS + AVERAGES, {"model": encoded(dense()), "feeds": {n: fed(x) for n, x in feeds.items()}})
    options: Any = {"loss": {"cross_entropy": "y"}, "optimizer": "adafactor", "ema": 0.8}
    with TrainingSession(dense(), **options) as s, TrainingSession(dense(), **options) as other:
        np.testing.assert_allclose(found["losses"], [s.step(feeds).loss for _ in range(6)], rtol=1e-4)
        assert found["evaluated"] == pytest.approx(s.evaluate(feeds, average=True)["loss"], rel=1e-4)
        for names, average in (("weights", True), ("own", False)):
            for name, w in s.weights(average=average).items():
                np.testing.assert_allclose(found[names][name], w.ravel(), rtol=1e-3, atol=1e-5)
        y = s.evaluate(feeds, ["y"], average=True)["y"]
        np.testing.assert_allclose(found["y"], y.ravel(), rtol=1e-3, atol=1e-4)
        other.load(base64.b64decode(found["state"]))
        assert other.evaluate(feeds, average=True)["loss"] == pytest.approx(found["evaluated"], rel=1e-6)
    assert "option ema" in found["refused"]
