"""The provider "webgpu" in Pyodide: the programs of onnxruntime_programs.py, which wait for the GPU in plain calls, and
a program that awaits it, in an interpreter that cannot wait."""

import asyncio
import json
import sys
import warnings

import js
from pyodide.ffi import can_run_sync

import pyruntime
from pyruntime.pyodide import session as of_pyodide

SOFTWARE = ("webgpu", {"allow_software": True})


def main(arg):
    if arg != "await":
        sys.path.insert(0, "/models")
        import onnxruntime_programs as programs

        found = json.loads(programs.main("", "WebGpuExecutionProvider"))
        session = programs.ort.InferenceSession("/models/digits.onnx", providers=[SOFTWARE, "wasm"])
        session.run(None, {"image": programs.ramp(1, 1, 28, 28)})
        return json.dumps([can_run_sync(), found, session.get_providers(), session.explain()["placement"]])
    return awaited()


async def awaited():
    create = of_pyodide.InferenceSession.create
    found = {"can_run_sync": can_run_sync()}
    x = [[n / 8 for n in range(4 * row, 4 * row + 4)] for row in range(2)]
    ask = js.navigator.gpu.requestAdapter
    js.navigator.gpu.requestAdapter = js.eval("async () => null")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        plain = pyruntime.InferenceSession("/models/affine.onnx", providers=["webgpu", "wasm"])
        found["plain"] = [plain.run(None, {"x": x})[0].tolist(), plain.get_providers()]
        none = await create("/models/affine.onnx", providers=["webgpu", "wasm"])
        found["none"] = none.explain()["providers"]
        found["warnings"] = [str(w.message) for w in seen]
    try:
        await create("/models/affine.onnx", providers=["webgpu"])
    except pyruntime.errors.PyRuntimeError as e:
        found["refused"] = f"{type(e).__name__}: {e}"
    js.navigator.gpu.requestAdapter = ask
    sessions = await asyncio.gather(*[create("/models/affine.onnx", providers=["webgpu"]) for _ in range(2)])
    runs = [session.run_awaitable(None, {"x": x[:rows]}) for session in sessions for rows in (1, 2, 1)]
    found["runs"] = [results[0].tolist() for results in await asyncio.gather(*runs)]
    found["used"] = sessions[0].explain()["providers"]
    found["metrics"] = [session.metrics()["runs"] for session in sessions]
    for feeds in ({"x": [[1.0, 2.0]]}, {}):
        try:
            await sessions[0].run_awaitable(None, feeds)
        except pyruntime.errors.InvalidInput as e:
            found.setdefault("mistakes", []).append(str(e))
    try:
        sessions[0].run(None, {"x": x})
    except pyruntime.errors.SessionFailed as e:
        found["cannot"] = str(e)
    found["again"] = (await sessions[0].run_awaitable(["y"], {"x": x}))[0].tolist()
    (joined,) = await (await create("/models/joined.onnx", providers=["webgpu"])).run_awaitable(
        None, {"a": [1.0, 2.0], "b": [3.0]}
    )
    found["joined"] = joined.tolist()
    sessions[0].trim()
    found["trimmed"] = (await sessions[0].run_awaitable(None, {"x": x}))[0].tolist()
    return json.dumps(found)
