"""python -m bench subnormals: nets whose numbers are partly subnormal, beside the same nets with zeros in their place.

Both run in turns, natively and in one page of Chromium; a ratio is the median of the turns' ratios. Intel's processors
take up to 150 cycles for a product of subnormal numbers, AMD's and ARM's hardly more than for others, so the line with
the option keep_subnormals says what this machine would lose. `error` is the largest difference of the results. What
does not depend on the machine is the number of subnormal operands of products, with the option and without: weights as
they are in memory, and operands that the model computes.

--detector FILE adds a model, such as rapidocr/models/PP-OCRv6_det_small.onnx of the package rapidocr from PyPI.
`training` makes steps of Adam whose gradients vanish after some time: the time of the last steps beside that of the
first, and the subnormal numbers among weights and moments.
"""

from __future__ import annotations

import argparse
import base64
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bench import chromium, machine
from kit import training_networks as nets
from pyruntime import InferenceSession, SessionOptions, TrainingSession

TINY = np.finfo(np.float32).tiny
SHARES = (0.0, 0.1, 0.6)
RULE = {"adam": {"rate": 1e-3, "beta1": 0.9, "beta2": 0.9}}
DECAY = """g (float[256, 256] x, float[256, 256] w) => (float[256, 256] y) <int64 steps = {200}, bool yes = {1}> {
  y = Loop (steps, yes, x) <body = b (int64 i, bool c, float[256, 256] h) => (bool d, float[256, 256] next) {
    d = Identity (c)  next = Mul (h, w)
  }>
}"""
NETS = {  # the text, the shapes of the feed and of the weight
    "conv 1x1": ("g (float[1, 768, 15, 20] x) => (float[1, 384, 15, 20] y) { y = Conv (x, w) }",
                 (1, 768, 15, 20), (384, 768, 1, 1)),
    "conv 3x3": ("g (float[1, 64, 32, 32] x) => (float[1, 64, 30, 30] y) { y = Conv (x, w) }",
                 (1, 64, 32, 32), (64, 64, 3, 3)),
    "gelu, matmul": ("g (float[64, 512] x) => (float[64, 512] y) { a = Gelu (x)  y = MatMul (a, w) }",
                     (64, 512), (512, 512)),
}  # fmt: skip
PAGE = """async ({ models, x, dims, turns }) => {
  const ort = await import('pyruntime');
  const ratios = [];
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const tensors = x.map((text) => new ort.Tensor('float32', new Float32Array(bytes(text).buffer), dims));
  const create = (text) => ort.InferenceSession.create(bytes(text), { intraOpNumThreads: 1 });
  const sessions = await Promise.all(models.map(create));
  for (let turn = 0; turn < turns + 2; turn += 1) {
    const times = [];
    for (let n = 0; n < 2; n += 1) {
      const start = performance.now();
      for (let again = 0; again < 4; again += 1) await sessions[n].run({ [sessions[n].inputNames[0]]: tensors[n] });
      times.push(performance.now() - start);
    }
    if (turn > 1) ratios.push(times[0] / times[1]);
  }
  await Promise.all(sessions.map((session) => session.release()));
  return ratios;
}"""
TRAINING_PAGE = """async ({ model, options, feeds, steps }) => {
  const ort = await import('pyruntime');
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const session = await ort.TrainingSession.create(bytes(model), { ...options, intraOpNumThreads: 1 });
  const x = new ort.Tensor('float32', new Float32Array(bytes(feeds.x).buffer), feeds.dims);
  const target = new ort.Tensor('int64', BigInt64Array.from(feeds.target, BigInt), [feeds.target.length]);
  const zeros = new ort.Tensor('float32', new Float32Array(x.size), feeds.dims);
  const times = [];
  for (let step = 0; step < steps + 10; step += 1) {
    const start = performance.now();
    await session.step({ x: step < 10 ? x : zeros, target });
    times.push(performance.now() - start);
  }
  await session.release();
  return times;
}"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench subnormals", description=__doc__)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1000, help="of training")
    parser.add_argument("--detector", help="a model of pictures with subnormal weights")
    parser.add_argument("--native", action="store_true", help="not in Chromium")
    args = parser.parse_args(argv)
    print(f"{machine.processor()}, load {machine.load()}")
    print(f"{'':16}{'share':>6}{'native':>8}{'kept':>8}{'error':>10}{'page':>8}{'operands, kept':>16}{'not':>8}")
    with nullcontext() if args.native else chromium.chromium() as browser:
        for name, (text, x_shape, w_shape) in NETS.items():
            for share in SHARES:
                w, x = _numbers(w_shape, share, 2), _numbers(x_shape, share, 1)
                models = [_model(text, v).SerializeToString() for v in (w, _flushed(w))]
                print(f"{name:16}{share:6.0%}{row(browser, models, [x, _flushed(x)], args.turns)}", flush=True)
        if args.detector:
            models = [onnx.load(args.detector).SerializeToString(), _without(onnx.load(args.detector))]
            x = np.random.default_rng(1).random((1, 3, 480, 640)).astype(np.float32)
            print(f"{'detector':22}{row(browser, models, [x, x], args.turns)}", flush=True)
        if browser:
            print(f"in the page: decaying state {decaying_in_page(browser, args.turns):.2f}", end="")
            print(f", training of {args.steps} steps {training_in_page(browser, args.steps):.2f}", flush=True)
    for keep in (False, True):
        print(f"decaying state{', kept' * keep}: {decaying(keep, args.turns):.2f}", flush=True)
    for keep in (False, True):
        ratio, count = training(args.steps, keep)
        print(f"training, {args.steps} steps{', kept' * keep}: {ratio:.2f}, {count} subnormal numbers", flush=True)
    return 0


def row(browser: Any, models: list[bytes], feeds: list[np.ndarray], turns: int) -> str:
    """The figures of a model and the same with zeros, each with its feed."""
    ratio, error = native(models, feeds, turns, False)
    kept, _ = native(models, feeds, turns, True)
    page = in_page(browser, models, feeds, turns) if browser else float("nan")
    counts = [operands(models[0], feeds[0], keep) for keep in (True, False)]
    return f"{ratio:8.2f}{kept:8.2f}{error:10.1e}{page:8.2f}{counts[0]:16}{counts[1]:8}"


def _numbers(shape: tuple[int, ...], share: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape).astype(np.float32)
    return np.where(rng.random(shape) < share, x * np.float32(0.2) * TINY, x).astype(np.float32)


def _flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < TINY, np.float32(0), x)


def _count(x: np.ndarray) -> int:
    return int(((x != 0) & (np.abs(x) < TINY)).sum())


def _model(text: str, w: np.ndarray | None) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    if w is not None:
        model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return model


def _without(model: onnx.ModelProto) -> bytes:
    """The model with zeros in place of subnormal weights."""
    weights = [
        *model.graph.initializer,
        *[a.t for n in model.graph.node for a in n.attribute if n.op_type == "Constant"],
    ]
    for tensor in weights:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(_flushed(numpy_helper.to_array(tensor)), tensor.name))
    return model.SerializeToString()


def _session(model: bytes, keep: bool) -> InferenceSession:
    options = SessionOptions()
    options.keep_subnormals, options.intra_op_num_threads = keep, 1
    return InferenceSession(model, options)


def _feeds(session: InferenceSession, x: np.ndarray) -> dict[str, np.ndarray]:
    return {session.get_inputs()[0].name: x}


def native(models: list[bytes], feeds: list[np.ndarray], turns: int, keep: bool) -> tuple[float, float]:
    """The ratio of the times, and the largest difference of the results."""
    sessions = [_session(model, keep) for model in models]
    results = [s.run(None, _feeds(s, x))[0] for s, x in zip(sessions, feeds, strict=True)]
    runs = [_run(s, _feeds(s, x)) for s, x in zip(sessions, feeds, strict=True)]
    return _ratio(runs, turns), float(np.abs(results[0] - results[1]).max())


def operands(model: bytes, x: np.ndarray, keep: bool) -> int:
    """Subnormal numbers among the weights in memory, and among operands of products that the model computes."""
    session = _session(model, keep)
    session.run(None, _feeds(session, x))
    executor = session._native.latest()
    spans = [span for span in executor.plan.constants.values() if span.size >= 1024]  # smaller ones have integers, too
    count = sum(_count(executor.host.memory[s.address : s.address + s.size // 4 * 4].view(np.float32)) for s in spans)
    whole = onnx.load_from_string(model)
    made = {name for node in whole.graph.node for name in node.output if node.op_type not in ("Constant", "Identity")}
    products = [n.input[0] for n in whole.graph.node if n.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm")]
    names = [name for name in dict.fromkeys(products) if name in made]
    copies = [f"{name}:operand" for name in names]  # because outputs stay as they are
    whole.graph.node.extend([onnx.helper.make_node("Abs", [n], [copy]) for n, copy in zip(names, copies, strict=True)])
    whole.graph.output.extend([onnx.helper.make_tensor_value_info(copy, 1, None) for copy in copies])
    shown = _session(whole.SerializeToString(), keep)
    return count + sum(_count(v) for v in (shown.run(copies, _feeds(shown, x)) if names else []))


def _run(session: Any, feeds: dict[str, np.ndarray]) -> Callable[[], Any]:
    return lambda: session.run(None, feeds)


def _ratio(runs: list[Callable[[], Any]], turns: int) -> float:
    ratios = []
    for _ in range(turns):
        times = []
        for run in runs:
            start = time.process_time()
            for _ in range(4):
                run()
            times.append(time.process_time() - start)
        ratios.append(times[0] / times[1])
    return statistics.median(ratios)


def in_page(browser: chromium.Chromium, models: list[bytes], feeds: list[np.ndarray], turns: int) -> float:
    x = [_encoded(np.ascontiguousarray(x).tobytes()) for x in feeds]
    with browser.page() as page:
        how = {"models": [_encoded(m) for m in models], "x": x, "dims": list(feeds[0].shape), "turns": turns}
        return statistics.median(page.evaluate(PAGE, how))


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decaying(keep: bool, turns: int) -> float:
    """A state that is multiplied by 0.5 in each of 200 steps, beside one that is multiplied by 1."""
    session = _session(_model(DECAY, None).SerializeToString(), keep)
    x = _numbers((256, 256), 0, 1)
    return _ratio([_run(session, {"x": x, "w": np.full_like(x, w)}) for w in (0.5, 1.0)], turns)


def decaying_in_page(browser: chromium.Chromium, turns: int) -> float:
    x = _numbers((256, 256), 0, 1)
    models = [_model(DECAY, np.full_like(x, w)).SerializeToString() for w in (0.5, 1.0)]
    return in_page(browser, models, [x, x], turns)


def layers() -> bytes:
    """Two layers: "x" (N, 256) -> "y" (N, 10)."""
    weights = nets.random(0, w1=(256, 512), b1=(512,), w2=(512, 10), b2=(10,))
    nodes = [nets.node("Gemm", "x w1 b1", "a"), nets.node("Tanh", "a", "b"), nets.node("Gemm", "b w2 b2", "y")]
    x, y = (onnx.TensorProto.FLOAT, ["N", 256]), (onnx.TensorProto.FLOAT, ["N", 10])
    return nets.model(nodes, {"x": x}, {"y": y}, weights)


def samples(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(rows, 256)).astype(np.float32), "target": rng.integers(0, 10, rows)}


def training(steps: int, keep: bool) -> tuple[float, int]:
    """The time of the last fiftieth of the steps over that of the first, after ten to warm up; and the subnormal
    numbers of the state at the end. Feeds are zero from the tenth step on, so that gradients vanish."""
    options = SessionOptions()
    options.keep_subnormals, options.intra_op_num_threads = keep, 1
    with TrainingSession(layers(), loss={"cross_entropy": "y"}, optimizer=RULE, sess_options=options) as session:
        feeds, times = samples(64), []
        for step in range(steps + 10):
            if step == 10:
                feeds = {n: np.zeros_like(v) if v.dtype == np.float32 else v for n, v in feeds.items()}
            start = time.process_time()
            session.step(feeds)
            times.append(time.process_time() - start)
        state = session.state()
    numbers = state[8 + int.from_bytes(state[:8], "little") :]  # safetensors: a header, then the elements
    return _late(times, steps), _count(np.frombuffer(numbers[: len(numbers) // 4 * 4], np.float32))


def _late(times: list[float], steps: int) -> float:
    few = max(steps // 50, 5)
    return statistics.median(times[-few:]) / statistics.median(times[10 : 10 + few])


def training_in_page(browser: chromium.Chromium, steps: int) -> float:
    feeds = samples(64)
    how = {"model": _encoded(layers()), "options": {"loss": {"crossEntropy": "y"}, "optimizer": RULE}, "steps": steps}
    x = {"x": _encoded(feeds["x"].tobytes()), "dims": [64, 256], "target": feeds["target"].tolist()}
    with browser.page() as page:
        return _late(page.evaluate(TRAINING_PAGE, {**how, "feeds": x}), steps)
