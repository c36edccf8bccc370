"""Runs in a stock Pyodide: sessions with adapters; what came out, as JSON. `given` is e2e/test_adapters.py's `arg`."""

import base64
import json
import time

import pyruntime
from pyruntime import InferenceSession, LoraAdapter, RunOptions, SessionOptions


def refused(action):
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def opened(model, adapters):
    options = SessionOptions()
    options.adapters = adapters
    return InferenceSession(model, options)


def using(active):
    options = RunOptions()
    named = {active: 1} if isinstance(active, str) else active
    for name, weight in (named if isinstance(named, dict) else dict.fromkeys(named, 1)).items():
        options.add_active_adapter(name, weight)
    return options


def decoders(arg, files):
    adapters = {"one": files["one"], "two": files["two"], "three": "/models"}
    for model in (arg["models"][0], arg["models"][2]):
        session, results, times = opened(base64.b64decode(model), adapters), [], []
        for active in (None, *arg["active"], None):
            start = time.perf_counter()
            (logits,) = session.run(None, {"ids": arg["ids"]}, active and using(active))
            times.append(1000 * (time.perf_counter() - start))
            results.append(memoryview(logits).cast("B").cast("f").tolist())
        inputs = [i.name for i in session.get_inputs()]
        yield {"results": results, "times": times, "inputs": inputs, "compiled": len(session.programs.table)}


def main(given):
    arg = json.loads(given)
    files = {name: base64.b64decode(x) for name, x in arg.items() if isinstance(x, str)}
    model = base64.b64decode(arg["models"][0])
    slots = opened(files["slots"], {"a": files["theirs"], "b": files["peftSlots"]})
    x = [[(row * 6 + n) / 12 for n in range(6)] for row in range(2)]
    ours, options = opened(model, {"one": files["one"]}), RunOptions()
    options.terminate = True
    other = LoraAdapter(files["two"])
    ids = {"ids": arg["ids"]}
    active = ({}, "a", ["b"], {"a": 1, "b": -1})
    errors = [refused(action) for action in (
        lambda: ours.run(None, ids, using("b")),
        lambda: ours.run(None, ids, using_object(other)),
        lambda: ours.run(None, ids, options),
        lambda: using_object(LoraAdapter()),
        lambda: opened(model, {"bad": bytes(9)}),
        lambda: opened(model, {"bad": files["other"]}),
        lambda: ours.run(None, ids, {}),
        lambda: pyruntime.InferenceSession(model, SessionOptions(adapters=3)),
    )]  # fmt: skip
    return json.dumps({
        "runs": list(decoders(arg, files)), "slotNames": [i.name for i in slots.get_inputs()], "errors": errors,
        "slotRuns": [sum(slots.run(["y"], {"x": x}, using(one))[0].tolist(), []) for one in active],
    })  # fmt: skip


def using_object(adapter):
    options = RunOptions()
    options.add_active_adapter(adapter)
    return options
