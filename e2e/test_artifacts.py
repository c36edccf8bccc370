"""The artifacts of onnxruntime-training in pages, under onnxruntime-web's names: curves, parameters, checkpoints."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from e2e.conftest import Tab
from kit.chromium import ROOT
from pyruntime.api.training import CheckpointState, Module

ARTIFACTS = ROOT / "tests/training/artifacts"
TRAIN = """
  const bytes = (text) => text && Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const text = (data) => btoa(Array.from(data, (c) => String.fromCharCode(c)).join(''));
  const array = (type, data) => (type === 'int64' ? BigInt64Array.from(data, BigInt) : Float32Array.from(data));
  const tensor = ({ type, data, dims }) => new ort.Tensor(type, array(type, data), dims);
  const outcome = (promise) => promise.then(() => 'no error', (error) => error.message);
  const create = ({ trainModel, evalModel, optimizerModel }, checkpointState) => ort.TrainingSession.create({
    trainModel: bytes(trainModel), checkpointState: bytes(checkpointState), optimizerModel: bytes(optimizerModel),
    ...evalModel ? { evalModel: new Blob([bytes(evalModel)]) } : {},
  }, { executionProviders: ['wasm'] });
  const found = {};
  for (const [name, given] of Object.entries(arg)) {
    const session = await create(given, given.checkpoint);
    session.setLearningRate(0.05);
    const [first, second] = session.trainingInputNames;
    const [lossName] = session.trainingOutputNames;
    const [losses, evaluated] = [[], []];
    for (const [n, [x, y]] of given.batches.entries()) {
      const feeds = { [first]: tensor(x), [second]: tensor(y) };
      losses.push((await session.runTrainStep(feeds))[lossName].data[0]);
      if (n % 2) {
        await session.runOptimizerStep();
        await session.lazyResetGrad();
      }
      evaluated.push((await session.runEvalStep(feeds, [lossName]))[lossName].data[0]);
    }
    const all = await session.getContiguousParameters(false);
    const trained = await session.getContiguousParameters();
    await session.loadParametersBuffer(new Uint8Array(trained.data.length * 4));
    const zero = (await session.getContiguousParameters()).data.every((x) => x === 0);
    await session.loadParametersBuffer(trained);
    const changed = await outcome(session.loadParametersBuffer(all.data.map((x) => x + 1), false));
    const sizes = [await session.getParametersSize(true), await session.getParametersSize(false)];
    const file = await session.export().then(text, (error) => error.message);
    const names = [session.trainingOutputNames.length, session.evalInputNames.length];
    await session.release();
    const next = await create(given, given.trained); // a checkpoint with moments
    next.setLearningRate(0.05);
    await next.runTrainStep({ [first]: tensor(given.batches[0][0]), [second]: tensor(given.batches[0][1]) });
    await next.runOptimizerStep();
    const after = [...(await next.getContiguousParameters(false)).data];
    await next.release();
    found[name] = { losses, evaluated, all: [...all.data], zero, changed, sizes, file, names, after };
  }
  const refuse = (given) => outcome(ort.TrainingSession.create(given));
  const trainModel = bytes(arg.frozen.trainModel);
  const refused = [await refuse({ trainModel }), await refuse({ trainModel, checkpoint: 'y' })];
  return { found, refused };
"""


def encoded(path: Path) -> str | None:
    return base64.b64encode(path.read_bytes()).decode() if path.exists() else None


def tensor(x: np.ndarray) -> dict[str, Any]:
    return {"type": x.dtype.name, "data": x.ravel().tolist(), "dims": list(x.shape)}


def given(name: str) -> dict[str, Any]:
    folder, expected = ARTIFACTS / name, np.load(ARTIFACTS / name / "expected.npz")
    files = {
        "trainModel": "training_model.onnx",
        "evalModel": "eval_model.onnx",
        "optimizerModel": "optimizer_model.onnx",
    }
    batches = [[tensor(x), tensor(y)] for x, y in zip(expected["batches"], expected["targets"], strict=True)]
    texts = {
        key: encoded(folder / file) for key, file in {**files, "checkpoint": "checkpoint", "trained": "trained"}.items()
    }
    return {**texts, "batches": batches}


def test_artifacts_in_pages(page: Tab) -> None:
    names = ["classifier", "clipped", "frozen", "normalised"]
    answer: Any = page.run(TRAIN, {name: given(name) for name in names})
    for name in names:
        found, expected = answer["found"][name], np.load(ARTIFACTS / name / "expected.npz")
        kept = np.delete(np.arange(len(found["all"])), range(36, 40) if name == "normalised" else [])  # noise
        np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-4)
        if expected["evaluated"].size:
            np.testing.assert_allclose(found["evaluated"], expected["evaluated"], rtol=1e-4)
        for key, file in (("all", "expected.npz"), ("after", "next.npz")):
            parameters = np.load(ARTIFACTS / name / file)["parameters"]
            np.testing.assert_allclose(np.array(found[key])[kept], parameters[kept], rtol=1e-3, atol=1e-5)
        assert found["zero"] and found["sizes"][1] == len(found["all"])
        assert ("frozen and would change" in found["changed"]) == (name == "frozen")
        assert found["names"] == [1 + (name == "classifier"), 2 * (name != "normalised")]
        assert ("inference model" in found["file"]) == (name != "classifier")
    file = base64.b64decode(answer["found"]["classifier"]["file"])
    x = np.load(ARTIFACTS / "classifier/expected.npz")["batches"][0]
    (logits,) = onnxruntime.InferenceSession(file).run(None, {"image": x})
    state = CheckpointState.load_checkpoint(ARTIFACTS / "classifier/checkpoint")
    module = Module(ARTIFACTS / "classifier/training_model.onnx", state)
    module.copy_buffer_to_parameters(np.array(answer["found"]["classifier"]["all"], np.float32) + 1)
    np.testing.assert_allclose(logits, module.eval()(x, np.zeros(4, np.int64))[1], atol=1e-5)
    assert "checkpointState is missing" in answer["refused"][0] and 'no artifact "checkpoint"' in answer["refused"][1]
