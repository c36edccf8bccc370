"""Sessions that Python calls in several ways at once, against NumPy.

`AXES` lists the ways. A combination has one value of each. A session refuses none of them, but outputs on the GPU of a
session that has none. kit/feature_table.py has the features that all places have.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from pyruntime import Batcher, InferenceSession, InvalidInput, LoraAdapter, RunOptions, SessionOptions, Terminated, on
from pyruntime.api.ort_value import OrtValue
from pyruntime.training.files import safetensors
from pyruntime.training.files.safetensors import Stored

WIDTH, CLASSES, RANK = 8, 6, 2
TEXT = f"""<ir_version: 9, opset_import: ["" : 17]> g (float[N, {WIDTH}] x) => (float[N, {CLASSES}] y) {{
    y = Gemm <transB = 1> (x, layer_weight, bias)
}}"""
AXES: dict[str, list[str]] = {
    "source": ["file", "bytes", "program", "program with weights", "cached program"],
    "providers": ["wasm", "webgpu", "both", "auto"],
    "door": ["run", "threads", "run_async", "ort values", "io binding", "batcher"],
    "adapters": ["none", "one", "two", "later"],
    "outputs": ["cpu", "gpu"],
    "watched by": ["nobody", "a listener", "a profile"],
    "memory": ["as it is", "trimmed", "prepared"],
    "batch": ["of one size", "of several sizes"],
    "before": ["nothing", "a wrong feed", "a stopped run", "another session"],
}
Combination = Mapping[str, str]
SOFTWARE = {"allow_software": True}
PROVIDERS: dict[str, list[Any]] = {
    "wasm": ["wasm"],
    "webgpu": [("webgpu", SOFTWARE)],
    "both": [("webgpu", SOFTWARE), "wasm"],
    "auto": [("auto", SOFTWARE)],
}


class Numbers(NamedTuple):
    """weight (CLASSES, WIDTH), bias (CLASSES,); deltas: what each adapter adds to the weight"""

    weight: np.ndarray
    bias: np.ndarray
    pairs: dict[str, tuple[np.ndarray, np.ndarray]]

    @classmethod
    def drawn(cls) -> Numbers:
        draw = np.random.default_rng(1).standard_normal
        pairs = {n: (draw((RANK, WIDTH)), draw((CLASSES, RANK))) for n in ("one", "two", "later")}
        floats = {n: (a.astype(np.float32), b.astype(np.float32)) for n, (a, b) in pairs.items()}
        return cls(draw((CLASSES, WIDTH)).astype(np.float32), draw(CLASSES).astype(np.float32), floats)

    def expected(self, x: np.ndarray, active: Mapping[str, float]) -> np.ndarray:
        whole = self.weight + sum(weight * self.pairs[n][1] @ self.pairs[n][0] for n, weight in active.items())
        return np.asarray(x @ whole.T + self.bias)

    def model(self) -> bytes:
        made = onnx.parser.parse_model(TEXT)
        made.graph.node[0].input[1] = "layer.weight"  # a name that the parser does not read
        for name, array in (("layer.weight", self.weight), ("bias", self.bias)):
            made.graph.initializer.append(numpy_helper.from_array(array, name))
        return made.SerializeToString()

    def adapter(self, name: str) -> bytes:
        """As a file of PEFT, whose product counts once."""
        tensors = {
            f"base_model.model.layer.lora_{part}.weight": x for part, x in zip("AB", self.pairs[name], strict=True)
        }
        stored = {key: Stored("float32", x.shape, np.ascontiguousarray(x)) for key, x in tensors.items()}
        config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK}
        return safetensors.write(stored, {"format": "pt", "adapter_config": json.dumps(config)})


NUMBERS = Numbers.drawn()
ACTIVE: dict[str, dict[str, float]] = {
    "none": {},
    "one": {"one": 0.5},
    "two": {"one": 0.5, "two": -2.0},
    "later": {"later": 1.0},
}


class Case:
    """One combination in a folder for its files."""

    def __init__(self, combination: Combination, folder: Path) -> None:
        self.has = combination
        self.folder = folder
        self.open = ExitStack()

    def run(self) -> None:
        """Errors: those of the session; AssertionError for other results than NumPy's"""
        with self.open:
            if self.has["watched by"] == "a listener":
                self.open.callback(on("session", lambda event: None))
            self.session = self.created()
            self.open.callback(self.session.release)
            self.prelude()
            if self.has["memory"] == "prepared":
                self.session.prepare({"N": 4})
            sizes = [2, 2, 2] if self.has["batch"] == "of one size" else [2, 5, 1]
            with ExitStack() as door:
                send = self.door(door)
                for _turn in range(2):
                    feeds = [
                        np.random.default_rng(n).standard_normal((size, WIDTH)).astype(np.float32)
                        for n, size in enumerate(sizes)
                    ]
                    for x, y in zip(feeds, send(feeds), strict=True):
                        np.testing.assert_allclose(
                            y, NUMBERS.expected(x, ACTIVE[self.has["adapters"]]), rtol=1e-4, atol=1e-4
                        )
                    if self.has["memory"] == "trimmed":
                        self.session.trim()
            if self.has["watched by"] == "a profile":
                assert Path(self.session.end_profiling()).stat().st_size > 100

    # ── the session ──

    def options(self) -> SessionOptions:
        options = SessionOptions()
        if self.has["adapters"] != "none":
            options.adapters = {name: NUMBERS.adapter(name) for name in ("one", "two")}
        if self.has["watched by"] == "a profile":
            options.enable_profiling = True
            options.profile_file_prefix = str(self.folder / "trace")
        if self.has["outputs"] == "gpu":
            options.preferred_output_location = "gpu-buffer"
        return options

    def created(self) -> InferenceSession:
        source, data = self.has["source"], NUMBERS.model()
        file = self.folder / "model.onnx"
        file.write_bytes(data)
        providers = PROVIDERS[self.has["providers"]]
        if source.startswith("program"):
            plain = SessionOptions()
            plain.adapters = self.options().adapters
            maker = InferenceSession(file, plain)
            names = ["webgpu", "wasm"] if self.has["providers"] != "wasm" else ["wasm"]
            exported = maker.export(
                "with weights" in source, providers=names, assume=["software"] if "webgpu" in names else []
            )
            maker.release()
            file = self.folder / "model.pyrt"
            file.write_bytes(exported)
        if source == "cached program":
            InferenceSession(file, self.options(), providers).release()
        return InferenceSession(data if source == "bytes" else file, self.options(), providers)

    def prelude(self) -> None:
        x = np.zeros((2, WIDTH), np.float32)
        if self.has["before"] == "a wrong feed":
            with pytest.raises(InvalidInput):
                self.session.run(None, {"x": x[:, 1:]})
        elif self.has["before"] == "a stopped run":
            options = RunOptions()
            options.terminate = True
            with pytest.raises(Terminated):
                self.session.run(None, {"x": x}, options)
        elif self.has["before"] == "another session":
            other = InferenceSession(NUMBERS.model(), providers=PROVIDERS[self.has["providers"]])
            self.open.callback(other.release)
            np.testing.assert_allclose(other.run(None, {"x": x})[0], NUMBERS.expected(x, {}), rtol=1e-4, atol=1e-4)

    # ── the door ──

    def run_options(self) -> RunOptions:
        options = RunOptions()
        for name, weight in ACTIVE[self.has["adapters"]].items():
            options.add_active_adapter(LoraAdapter(NUMBERS.adapter(name)) if name == "later" else name, weight)
        return options

    def door(self, stack: ExitStack) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
        """What runs several feeds and returns their results."""
        session, options, door = self.session, self.run_options(), self.has["door"]

        def run(x: np.ndarray) -> np.ndarray:
            return self.array(session.run(None, {"x": x}, options)[0])

        def values(x: np.ndarray) -> np.ndarray:
            (y,) = session.run_with_ort_values(None, {"x": OrtValue.ortvalue_from_numpy(x)}, options)
            return y.numpy()

        def binding(x: np.ndarray) -> np.ndarray:
            bound = session.io_binding()
            bound.bind_cpu_input("x", x)
            bound.bind_output("y", "webgpu" if self.has["outputs"] == "gpu" else "cpu")
            session.run_with_iobinding(bound, options)
            return bound.get_outputs()[0].numpy()

        async def asynchronous(feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
            loop = asyncio.get_running_loop()
            futures = []
            for x in feeds:
                future = loop.create_future()
                futures.append(future)
                done = partial(_settle, loop, future)
                session.run_async(None, {"x": x}, done, None, options)
            return [self.array((await f)[0]) for f in futures]

        if door == "threads":
            pool = stack.enter_context(ThreadPoolExecutor(3))
            return lambda feeds: list(pool.map(run, feeds))
        if door == "run_async":
            return lambda feeds: asyncio.run(asynchronous(feeds))
        if door == "batcher":
            batcher = stack.enter_context(Batcher(session, size=8, wait=5.0))
            pool = stack.enter_context(ThreadPoolExecutor(3))
            return lambda feeds: list(pool.map(lambda x: self.array(batcher.run(None, {"x": x}, options)[0]), feeds))
        one = {"run": run, "ort values": values, "io binding": binding}[door]
        return lambda feeds: [one(x) for x in feeds]

    def array(self, y: Any) -> np.ndarray:
        return y if isinstance(y, np.ndarray) else y.get_data()


def _settle(loop: Any, future: Any, results: Any, _: Any, error: str) -> None:
    act = partial(future.set_exception, RuntimeError(error)) if error else partial(future.set_result, results)
    loop.call_soon_threadsafe(act)
