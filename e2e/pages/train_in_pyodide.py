"""Runs in a stock Pyodide: trains digits, adapters and a model in float16; what came out, as JSON.

`given` is JSON: options of the digits' session, batches as row numbers, rows that are held out.
"""

import base64
import json
import math
from array import array
from pathlib import Path

import pyruntime
from pyruntime import SessionOptions, TrainingSession

CLASSES = {"cross_entropy": "y"}
X = [[0.1 * n for n in range(6)], [1.0] * 6, [-0.5] * 6, [0.0] * 6]
BATCH = {"x": X, "target": [0, 1, 2, 0]}


def text(data):
    return base64.b64encode(data).decode()


def asked(action):
    """What it returns, or its error."""
    try:
        return action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def refused(action):
    """The error of an action that returns nothing of interest, or None."""
    found = asked(action)
    return found if isinstance(found, str) else None


def digits(given):
    images = memoryview(Path("/models/images.bin").read_bytes())
    labels = array("q", Path("/models/labels.bin").read_bytes())

    def batch(rows):
        data = b"".join(images[256 * n : 256 * n + 256] for n in rows)
        image = memoryview(data).cast("f").cast("B").cast("f", (len(rows), 1, 8, 8))
        return {"image": image, "target": array("i", [labels[n] for n in rows])}

    heard = []
    end = pyruntime.on("session", heard.append)
    session = TrainingSession("/models/digits.onnx", **given["options"])
    losses = [session.step(batch(rows)).loss for rows in given["batches"]]
    end()
    evaluated = session.evaluate(batch(given["held"]), ["logits"])
    session.save("/tmp/digits.safetensors")
    file, state = session.export("/tmp/digits.onnx"), Path("/tmp/digits.safetensors").read_bytes()
    first = [session.step(batch(rows)).loss for rows in given["batches"][:2]]
    session.load("/tmp/digits.safetensors")
    session.trim()
    again = [session.step(batch(rows)).loss for rows in given["batches"][:2]]
    session.release()
    return {
        "losses": losses, "heard": [e["loss"] for e in heard if e["type"] == "step" and e["session"] == session.id],
        "loss": evaluated["loss"], "logits": evaluated["logits"].tolist(), "file": text(file), "state": text(state),
        "first": first, "again": again, "parameters": [[p.name, p.shape] for p in session.parameters()],
        "written": Path("/tmp/digits.onnx").read_bytes() == file and not list(Path("/tmp").glob("*.part")),
    }  # fmt: skip


def adapters():
    lora = {"rank": 2, "alpha": 8, "targets": ["w1", "w2"]}
    with TrainingSession("/models/dense.onnx", loss=CLASSES, lora=lora, optimizer={"sgd": 0.02}) as session:
        before = session.evaluate(BATCH)["loss"]
        for _ in range(5):
            session.step(BATCH)
        for path in ("mine.safetensors", "mine.onnx_adapter", "peft"):
            session.save_adapter(f"/tmp/{path}")
        files = {p: text(Path(f"/tmp/{p}").read_bytes()) for p in ("mine.safetensors", "mine.onnx_adapter")}
        folder = sorted(p.name for p in Path("/tmp/peft").iterdir())
        after = session.evaluate(BATCH, ["y"])
        return {
            "before": before, "after": after["loss"], "y": after["y"].tolist(), "files": files, "folder": folder,
            "file": text(session.export()),
        }  # fmt: skip


def accumulated():
    options = {"loss": CLASSES, "optimizer": {"sgd": 0.1}, "proximal": 0.1}
    halves = [{name: rows[n : n + 2] for name, rows in BATCH.items()} for n in (0, 2)]
    with TrainingSession("/models/dense.onnx", accumulate=True, **options) as session:
        for half in halves:
            session.accumulate(half)
        result = session.apply()
        vector = memoryview(session.get_contiguous_parameters()).tolist()
    with TrainingSession("/models/dense.onnx", **options) as session:
        whole = session.step(BATCH)
        other = memoryview(session.get_contiguous_parameters())
        session.load_parameters_buffer(array("f", [2 * x for x in vector]))
        doubled = memoryview(session.get_contiguous_parameters()).tolist() == [2 * x for x in vector]
        session.load_parameters_buffer(other)
        session.set_weights({"b1": [0] * 8})
        zeros = session.weights()["b1"].tolist() == [0.0] * 8
        size = session.get_parameters_size()
    return {
        "step": [result.step, result.applied, whole.step], "vector": vector, "other": other.tolist(),
        "doubled": doubled, "zeros": zeros, "size": size == len(vector),
    }  # fmt: skip


def halves():
    """float16: the scale of the loss falls until gradients fit."""
    with TrainingSession("/models/halves.onnx", loss={"mse": "y"}, optimizer={"sgd": 1e-3}) as session:
        feeds = {"x": [[1.0, 2.0]], "target": [[300.0]]}
        scales, applied, losses = [], [], []
        for _ in range(14):
            scales.append(session.loss_scale)
            result = session.step(feeds)
            applied.append(result.applied)
            losses.append(result.loss)
        file, w = session.export(), session.weights()["w"].tolist()
    return {"scales": scales, "applied": applied, "losses": losses, "file": text(file), "w": w}


def reports(memory):
    """As in kit/training_reports.py."""
    made = {} if memory is None else {"memory": memory}
    session, rows = TrainingSession("/models/dense.onnx", loss=CLASSES, **made), []

    def row(runs):
        used = asked(lambda: session.explain()["providers"]["used"][0])
        figures = asked(session.memory)
        kind = "weights and peak" if getattr(figures, "peak", 0) else "weights"
        rows.append([used, runs, kind if getattr(figures, "weights", 0) else str(figures)])

    row(session.metrics()["runs"])
    session.step(BATCH)
    row(session.metrics()["runs"])
    session.release()
    row(None)
    return rows


def errors():
    def create(**options):
        return TrainingSession("/models/dense.onnx", **options)

    session, endless = create(loss=CLASSES, accumulate=True), [[math.inf] * 6] * 4
    released = create(loss=CLASSES)
    released.release()
    return [refused(action) for action in (
        create,
        lambda: create(loss=CLASSES, trainable="q.*"),
        lambda: create(loss=CLASSES, lora={"targets": "q"}),
        lambda: create(loss=CLASSES, sess_options=SessionOptions(memory_limit=100)),
        session.apply,
        lambda: session.step({"x": X, "target": [0, 1, 2]}),
        lambda: session.step({"x": X, "target": [0, 1, 2, 3]}),
        lambda: session.step(BATCH, run_options=object()),
        lambda: session.load(bytes(9)),
        lambda: session.load_parameters_buffer(array("f", [1])),
        lambda: session.set_weights({"w1": [1.0]}),
        session.adapter,
        lambda: released.step(BATCH),
        lambda: print(session.step({"x": endless, "target": [0, 1, 2, 0]}).applied, session.step(BATCH).applied),
    )]  # fmt: skip


def main(given):
    return json.dumps({
        "digits": digits(json.loads(given)), "adapters": adapters(), "accumulated": accumulated(), "halves": halves(),
        "errors": errors(), "reports": [reports(memory) for memory in json.loads(given)["memory"]],
    })  # fmt: skip
