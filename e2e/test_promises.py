"""Public methods that return promises reject: they never throw, whatever they are called with."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from e2e.conftest import Tab
from kit.chromium import ROOT
from kit.training_networks import dense

ARTIFACTS = ROOT / "tests/training/artifacts/classifier"
# Names of the classes and of the module in the test's page, by what declares their methods
DECLARATIONS = {
    "InferenceSession": ("index.d.ts", r"\n  interface InferenceSession \{(.*?)\n  \}"),
    "InferenceSession static": ("index.d.ts", r"\n  interface InferenceSessionFactory \{(.*?)\n  \}"),
    "TrainingSession": ("training.d.ts", r"\nexport interface TrainingSession \{(.*?)\n\}"),
    "TrainingSession static": ("training.d.ts", r"\nexport const TrainingSession: \{(.*?)\n\};"),
    "ArtifactSession": ("training.d.ts", r"\nexport interface ArtifactSession \{(.*?)\n\}"),
    "Batcher": ("extras.d.ts", r"\nexport class Batcher \{(.*?)\n\}"),
    "TextGenerator": ("extras.d.ts", r"\nexport class TextGenerator \{(.*?)\n\}"),
    "Tensor": ("pictures.d.ts", r"\nexport interface Drawn \{(.*?)\n\}"),
    "ort": ("index.d.ts", r"(.*)"),
    "models": ("index.d.ts", r"\nexport const models: \{(.*?)\n\};"),
}
RELEASE = ("release", "close")

CHECK = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const { Batcher, TextGenerator } = await import('/dist/extras.mjs');
  const made = async () => {
    const session = await ort.InferenceSession.create('/models/add.onnx');
    const writing = await ort.InferenceSession.create(bytes(arg.decoder), TextGenerator.options());
    const files = Object.entries(arg.artifacts).map(([name, file]) => [name, bytes(file)]);
    return {
      InferenceSession: session, 'InferenceSession static': ort.InferenceSession,
      'TrainingSession static': ort.TrainingSession,
      TrainingSession: await ort.TrainingSession.create(bytes(arg.model), { loss: { crossEntropy: 'y' } }),
      ArtifactSession: await ort.TrainingSession.create(Object.fromEntries(files)),
      Batcher: new Batcher(await ort.InferenceSession.create('/models/affine.onnx')),
      TextGenerator: new TextGenerator(writing, {}),
      Tensor: new ort.Tensor('float32', [1], [1]), ort, models: ort.models,
    };
  };
  const bad = [
    [], [null], [null, null, null], [5], [{}, 5], ['no such', {}, 5], [{ x: 5 }, ['none'], { signal: 5 }], [[], [], []],
  ];
  const found = { thrown: [], absent: [], untyped: [], calls: 0 };
  const settled = [];
  const all = await made();
  for (const isReleased of [false, true]) {
    for (const [owner, names] of Object.entries(arg.methods)) {
      for (const name of names) {
        if (typeof all[owner][name] !== 'function') found.absent.push(`${owner}.${name}`);
        for (const args of bad) {
          found.calls++;
          const call = `${owner}.${name}(${args.map(String)})`;
          try {
            const result = all[owner][name](...args);
            if (typeof result?.then !== 'function') found.thrown.push(`${call} is no promise`);
            settled.push(Promise.resolve(result).then(() => {}, (error) => {
              if (!(error instanceof ort.PyRuntimeError)) found.untyped.push(`${call}: ${error}`);
            }));
          } catch (error) {
            found.thrown.push(`${call}: ${error}`);
          }
        }
      }
    }
    await Promise.all(settled);
    for (const each of Object.values(all)) await (each.release ?? each.close)?.call(each).catch?.(() => {});
  }
  return found;
"""


def methods() -> dict[str, list[str]]:
    """Names of those that return promises, by what has them."""
    found = {}
    for owner, (file, pattern) in DECLARATIONS.items():
        (declared,) = re.findall(pattern, "\n" + (ROOT / "web" / file).read_text(), re.DOTALL)[:1]
        function = r"export (?:async )?function (\w+)" if owner == "ort" else r"[\s;](\w+)(?:<[^>]*>)?"
        names = re.findall(function + r"\((?:[^()]|\([^()]*\))*\): Promise<", declared)
        found[owner] = [name for name in dict.fromkeys(names) if name not in RELEASE]
    return found


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_no_method_throws(tab: Callable[..., Tab]) -> None:
    page = tab()
    page.open("/esm.html")
    every = methods()
    assert all(every.values()) and sum(map(len, every.values())) > 50, every
    files = {
        "trainModel": "training_model.onnx",
        "checkpointState": "checkpoint",
        "optimizerModel": "optimizer_model.onnx",
    }
    artifacts = {name: encoded((ARTIFACTS / file).read_bytes()) for name, file in files.items()}
    decoder = encoded((ROOT / "demo/text/decoder.onnx").read_bytes())
    arg = {"methods": every, "model": encoded(dense()), "decoder": decoder, "artifacts": artifacts}
    found: Any = page.run(CHECK, arg)
    faults = [*found["thrown"], *found["absent"], *found["untyped"]]
    assert not faults, "\n".join(faults)
    assert found["calls"] > 700
