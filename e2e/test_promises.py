"""Public methods that return promises reject: they never throw, whatever they are called with."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from typing import Any

from e2e.conftest import Tab
from kit.chromium import ROOT
from kit.training_networks import deep

ARTIFACTS = ROOT / "tests/training/artifacts/classifier"
RELEASE = ("release", "close")
SYNCHRONOUS = ("fromTexture",)  # for textures of WebGL, as in onnxruntime-web
# Without a session, extras.mjs does not know the package's classes of errors: it rejects with a TypeError.
OF_A_SESSION = {("TextGenerator static", "create")}
# Of kit/public_api.mjs, what the page of this test has no object of
ABSENT = {
    "Backend": "pages do not call it",
    "InferenceSessionHandler": "pages do not call it",
    "InferenceSessionFactory": "the type of InferenceSession itself",
    "TensorFactory": "the type of Tensor itself",
    "TensorConstructor": "the type of Tensor itself",
    "ConversionUtils": "a part of Tensor",
    "TextTokenizer": "an object of the page",
    "Drawn": "a part of Tensor",
    "TypedTensor": "a Tensor",
    "quantize module": "ort has its function",
    "offline module": "it registers service workers; e2e/test_offline.py",
}

MADE = """
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const extras = await import('/dist/extras.mjs');
  const { Batcher, TextGenerator } = extras;
  const loss = { loss: { crossEntropy: 'logits' } };
  const classes = arg.owners.map((name) => [name, ort[name.replace(' static', '')]]);
  const errors = Object.fromEntries(classes.filter(([, found]) => found?.prototype instanceof Error));
  const made = async () => {
    const session = await ort.InferenceSession.create('/models/add.onnx', { executionProviders: ['webgpu'] });
    const writing = await ort.InferenceSession.create(bytes(arg.decoder), TextGenerator.options());
    const files = Object.entries(arg.artifacts).map(([name, file]) => [name, bytes(file)]);
    return {
      ...errors, InferenceSession: session, 'InferenceSession static': ort.InferenceSession,
      'TrainingSession static': ort.TrainingSession,
      TrainingSession: await ort.TrainingSession.create(bytes(arg.model), { ...loss, accumulate: true }),
      ArtifactSession: await ort.TrainingSession.create(Object.fromEntries(files)),
      Batcher: new Batcher(await ort.InferenceSession.create('/models/affine.onnx')), 'Batcher static': Batcher,
      TextGenerator: new TextGenerator(writing, { chatTemplate: '{{ messages[0].role }}' }),
      'TextGenerator static': TextGenerator,
      Tensor: new ort.Tensor('float32', new Float32Array(12), [1, 3, 2, 2]), 'Tensor static': ort.Tensor,
      'index module': ort, 'extras module': extras, 'models static': ort.models, writing,
    };
  };
  const all = await made();
  const absent = arg.owners.filter((name) => !all[name]);
"""
CHECK = """
  const bad = [
    [], [null], [null, null, null], [5], [{}, 5], ['no such', {}, 5], [{ x: 5 }, ['none'], { signal: 5 }], [[], [], []],
  ];
  const found = { thrown: [], absent, untyped: [], calls: 0 };
  const settled = [];
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
            const late = setTimeout(() => found.thrown.push(`${call} has not settled`), 60000);
            settled.push(Promise.resolve(result).finally(() => clearTimeout(late)).then(() => {}, (error) => {
              const isOwn = owner === 'extras module' && error.type === 'InvalidInput'; // without a session
              const isTyped = error instanceof ort.PyRuntimeError || isOwn;
              if (!isTyped) found.untyped.push(`${call}: ${error}`);
            }));
          } catch (error) {
            found.thrown.push(`${call}: ${error}`);
          }
        }
      }
    }
    const longest = new Promise((resolve) => { setTimeout(resolve, 70000); });
    await Promise.race([Promise.all(settled), longest]);
    for (const each of Object.values(all)) await (each.release ?? each.close)?.call(each).catch?.(() => {});
  }
  return found;
"""


def public_api() -> dict[str, dict[str, Any]]:
    """Methods by what has them, without what this test cannot call."""
    command = ["node", "kit/public_api.mjs"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert ABSENT.keys() <= found.keys()
    return {owner: methods for owner, methods in found.items() if owner not in ABSENT}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def opened(tab: Callable[..., Tab]) -> tuple[Tab, dict[str, Any]]:
    """A page, and the files of MADE."""
    page = tab()
    page.open("/esm.html")
    files = {
        "trainModel": "training_model.onnx",
        "checkpointState": "checkpoint",
        "optimizerModel": "optimizer_model.onnx",
    }
    artifacts = {name: encoded((ARTIFACTS / file).read_bytes()) for name, file in files.items()}
    decoder = encoded((ROOT / "demo/text/decoder.onnx").read_bytes())
    return page, {"model": encoded(deep(1, 4, 8)), "decoder": decoder, "artifacts": artifacts}


def test_no_method_throws(tab: Callable[..., Tab]) -> None:
    every = {
        owner: [
            name
            for name, method in methods.items()
            if method["isPromise"] and name not in (*RELEASE, *SYNCHRONOUS) and (owner, name) not in OF_A_SESSION
        ]
        for owner, methods in public_api().items()
    }
    every = {owner: names for owner, names in every.items() if names}
    assert sum(map(len, every.values())) > 50, every
    page, files = opened(tab)
    found: Any = page.run(MADE + CHECK, {"methods": every, "owners": list(every), **files})
    page.forgive("404 (File not found)")
    faults = [*found["thrown"], *found["absent"], *found["untyped"]]
    assert not faults, "\n".join(faults)
    assert found["calls"] > 700


# What a method with optional parameters needs besides, as JavaScript
NEEDS = {
    "index module.inspect": "'/models/add.onnx'",
    "index module.python": "'1'",
    "index module.quantize": "'/models/affine.onnx', { smallest: 1 }",
    "index module.quantizeStatic": "'/models/affine.onnx', [{ x: floats(2, 4) }]",
    "InferenceSession static.create": "'/models/add.onnx'",
    "InferenceSession.run": "sum()",
    "InferenceSession.verify": "sum()",
    "InferenceSession.tune": "sum(), { seconds: 0.01 }",
    "InferenceSession.profile": "sum()",
    "TrainingSession static.create": "bytes(arg.model), loss",
    "TrainingSession.step": "batch()",
    "TrainingSession.steps": "[batch()]",
    "TrainingSession.freeze": "[]",
    "TrainingSession.accumulate": "batch()",
    "TrainingSession.evaluate": "batch()",
    "TrainingSession.gradients": "batch()",
    "TrainingSession.fit": "[batch()], { epochs: 1 }",
    "TrainingSession.loadParametersBuffer": "await all.TrainingSession.getContiguousParameters()",
    "ArtifactSession.runTrainStep": "labelled()",
    "ArtifactSession.runEvalStep": "labelled()",
    "ArtifactSession.loadParametersBuffer": "await all.ArtifactSession.getContiguousParameters()",
    "Batcher static.new": "all.Batcher.session",
    "Batcher.run": "{ x: new ort.Tensor('float32', new Float32Array(4), [1, 4]) }",
    "TextGenerator static.new": "all.writing",
    "TextGenerator static.create": "all.writing, { tokenizer: '/site/text/tokenizer.json' }",
    "TextGenerator.applyChatTemplate": "[{ role: 'user' }], { tokenize: false }",
    "TextGenerator.generate": "[1], { maxTokens: 1 }",
    "TextGenerator.stream": "[1], { maxTokens: 1 }",
}
BEFORE = {
    "TrainingSession.apply": "await all.TrainingSession.accumulate(batch())",
    # Gradients of an earlier call may wait.
    **dict.fromkeys(
        ("TrainingSession.steps", "TrainingSession.gradients", "TrainingSession.fit"),
        "await all.TrainingSession.apply().catch(() => {})",
    ),
}
# onnxruntime-common's own functions
FOREIGN = {"Tensor static", "Tensor.toDataURL", "Tensor.toImageData"}

WALK = """
  const floats = (...dims) => new ort.Tensor('float32', new Float32Array(dims.reduce((a, b) => a * b, 1)), dims);
  const sum = () => ({ a: floats(2, 3), b: floats(2, 3) });
  const target = (rows) => new ort.Tensor('int64', new BigInt64Array(rows), [rows]);
  const batch = () => ({ image: floats(2, 1, 8, 8), target: target(2) });
  const labelled = () => Object.fromEntries(all.ArtifactSession.trainingInputNames.map((name, n) => (
    [name, n ? target(2) : new ort.Tensor('float32', new Float32Array(72), [2, 1, 6, 6])])));
  const isRecord = (value) => Object.getPrototypeOf(value ?? 0) === Object.prototype;
  /** Arguments with other options: `change` gets the names of the options. */
  const changed = (args, parameters, change) => parameters.flatMap(({ options }, n) => {
    if (!options.length || n < args.length && !isRecord(args[n])) return [];
    const given = [...args];
    given[n] = { ...change(options), ...args[n] };
    return [given];
  });
  const result = async (owner, name, args) => {
    if (arg.before[`${owner}.${name}`]) await evaluate(arg.before[`${owner}.${name}`]);
    const found = name === 'new' ? new all[owner](...args) : await all[owner][name](...args);
    if (['stream', 'resume'].includes(name)) for await (const piece of found) void piece;
    return typeof found === 'number' ? found : found?.size ?? typeof found;
  };
  const evaluate = (code) => eval(`(async () => [${code}])()`);
  const found = { faults: absent, calls: 0 };
  /** Calls each method as it should be, then with other arguments; judge(outcome, right, given) says what is wrong. */
  const walk = async (variants, judge) => {
    for (const [owner, methods] of Object.entries(arg.methods)) {
      for (const [name, overloads] of Object.entries(methods)) {
        try {
          const args = await evaluate(arg.needs[`${owner}.${name}`] ?? '');
          const right = await result(owner, name, args);
          for (const given of overloads.flatMap((parameters) => variants(args, parameters))) {
            found.calls++;
            const texts = given.map((value) => (isRecord(value) ? `{ ${Object.keys(value)} }` : value));
            const outcome = await result(owner, name, given).catch((error) => error);
            const fault = judge(outcome, right, given);
            if (fault) found.faults.push(`${owner}.${name}(${texts}): ${fault}`);
          }
        } catch (error) {
          found.faults.push(`${owner}.${name}: ${error.stack}`);
        }
      }
    }
    return found;
  };
"""
NULLS = """
  return walk((args, parameters) => {
    const longer = parameters.slice(args.length);
    const nulls = longer.length ? [null, undefined].map((nothing) => [...args, ...longer.map(() => nothing)]) : [];
    return [...nulls, ...changed(args, parameters, (names) => Object.fromEntries(names.map((name) => [name, null])))];
  }, (outcome, right) => (outcome === right ? '' : `${outcome?.stack ?? outcome}, not ${right}`));
"""
MISSPELT = """
  const warned = [];
  const warn = console.warn;
  console.warn = (...texts) => warned.push(texts.join(' '));
  const judge = (outcome, right, given) => {
    const key = given.filter(isRecord).flatMap(Object.keys).find((name) => /_\\d+$/.test(name));
    const isNamed = (text) => text.includes(key);
    const isTyped = outcome?.type === 'InvalidInput' || outcome instanceof TypeError; // without a session
    const isRefused = isTyped && isNamed(outcome.message);
    if (outcome instanceof Error) return isRefused ? '' : outcome.stack;
    return warned.splice(0).some(isNamed) ? '' : `${key} is ignored`;
  };
  let n = 0; // one message may warn of a key only once
  await walk((args, parameters) => changed(args, parameters, (names) => ({ [`${names.at(-1)}_${n++}`]: 1 })), judge);
  console.warn = warn;
  return found;
"""


def walked(tab: Callable[..., Tab], every: dict[str, dict[str, Any]], script: str) -> dict[str, Any]:
    page, files = opened(tab)
    needs = NEEDS | {
        f"{owner}.new": "'a text'"
        for owner, found in every.items()
        if "new" in found and found["new"][0][0]["name"] == "detail"  # of errors
    }
    arg = {"methods": every, "owners": list(every), "needs": needs, "before": BEFORE, **files}
    found: dict[str, Any] = page.run(MADE + WALK + script, arg)  # type: ignore[assignment]
    return found


def with_parameters(wanted: Callable[[dict[str, Any]], bool]) -> dict[str, dict[str, Any]]:
    """The overloads of this package's methods of which some parameter is wanted."""
    every: dict[str, dict[str, Any]] = {}
    for owner, methods in public_api().items():
        for name, method in methods.items():
            is_foreign = owner in FOREIGN or f"{owner}.{name}" in FOREIGN
            if not is_foreign and any(wanted(p) for overload in method["overloads"] for p in overload):
                every.setdefault(owner, {})[name] = method["overloads"]
    return every


def test_null_is_absent(tab: Callable[..., Tab]) -> None:
    """In each optional parameter, and in each option."""
    found = walked(tab, with_parameters(lambda parameter: parameter["isOptional"]), NULLS)
    assert not found["faults"], "\n".join(found["faults"])
    assert found["calls"] > 60


def test_unknown_options_are_refused(tab: Callable[..., Tab]) -> None:
    """Or one warning names them: every method that takes an object of options, found in the declarations."""
    every = with_parameters(lambda parameter: bool(parameter["options"]))
    of_errors = {owner for owner, found in every.items() if "new" in found and found["new"][0][0]["name"] == "detail"}
    every = {owner: methods for owner, methods in every.items() if owner not in of_errors}
    found = walked(tab, every, MISSPELT)
    assert not found["faults"], "\n".join(found["faults"])
    assert found["calls"] > 20
