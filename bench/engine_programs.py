"""One job in an engine, for bench/engines.py: ENGINE LIBRARY MODEL ROWS. Runs in the engine's environment and prints,
as JSON, the seconds from the start of the job to its first row, and the rows a second after it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np

WIDTH, BATCH, WORKERS = 256, 256, 2
_opened: dict[str, Any] = {}
arrived: list[float] = []  # when rows did, in Beam


class Model:
    """Takes rows (N, WIDTH), in any process. Ours travels as a session; onnxruntime's cannot, and is opened there."""

    def __init__(self, library: str, path: str) -> None:
        self.library, self.path = library, path
        self._session = opened(library, path) if library == "pyruntime" else None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if self._session is None and self.path not in _opened:
            _opened[self.path] = opened(self.library, self.path)
        found: np.ndarray = (self._session or _opened[self.path]).run(None, {"x": x})[0]
        return found


def opened(library: str, path: str) -> Any:
    module = import_module(library)
    options = module.SessionOptions()
    options.intra_op_num_threads = 1
    if library == "pyruntime":
        options.share_weights = True
    return module.InferenceSession(path, options)


def timed(results: Iterable[int], start: float) -> dict[str, float]:
    """results: numbers of rows, as they arrive"""
    iterator = iter(results)
    next(iterator)
    first = time.perf_counter()
    count = sum(iterator)
    return {"first": first - start, "rows": count / (time.perf_counter() - first)}


def arrive(_: object) -> None:
    arrived.append(time.perf_counter())


class Actor:
    def __init__(self, model: Model) -> None:
        self.model = model

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": self.model(batch["data"])}


def ray_data(model: Model, x: np.ndarray) -> dict[str, float]:
    import ray

    ray.init(num_cpus=WORKERS + 1, include_dashboard=False, log_to_driver=False)
    table = ray.data.from_numpy(np.array_split(x, len(x) // BATCH))
    start = time.perf_counter()
    results = table.map_batches(Actor, fn_constructor_args=[model], batch_size=BATCH, concurrency=WORKERS)
    return timed((len(batch["y"]) for batch in results.iter_batches(batch_size=BATCH)), start)


def ray_serve(model: Model, x: np.ndarray) -> dict[str, float]:
    import ray
    from ray import serve

    ray.init(num_cpus=WORKERS + 2, include_dashboard=False, log_to_driver=False)
    start = time.perf_counter()
    handle = serve.run(serve.deployment(Actor, num_replicas=WORKERS).bind(model))
    parts = np.array_split(x, len(x) // BATCH)

    def results() -> Iterable[int]:
        yield len(handle.remote({"data": parts[0]}).result()["y"])
        waiting = [handle.remote({"data": part}) for part in parts[1:]]
        for one in waiting:
            yield len(one.result()["y"])

    return timed(results(), start)


def dask(model: Model, x: np.ndarray) -> dict[str, float]:
    import dask.dataframe as dd
    import pandas as pd
    from dask.distributed import Client, as_completed

    def run(part: Any) -> Any:
        return pd.DataFrame(model(part.to_numpy(np.float32)), part.index)

    with Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as client:
        table = dd.from_pandas(pd.DataFrame(x), npartitions=len(x) // BATCH)
        start = time.perf_counter()
        parts = table.map_partitions(run, meta=pd.DataFrame(np.zeros((0, 16), np.float32))).to_delayed()
        return timed((len(done.result()) for done in as_completed(client.compute(parts))), start)


def spark(model: Model, x: np.ndarray) -> dict[str, float]:
    import pandas as pd
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql import SparkSession
    from pyspark.sql.types import ArrayType, FloatType

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master(f"local[{WORKERS}]").config("spark.ui.enabled", "false").getOrCreate()
    session.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    library, path = model.library, model.path
    type_ = ArrayType(FloatType())
    read = predict_batch_udf(
        lambda: Model(library, path), return_type=type_, batch_size=BATCH, input_tensor_shapes=[[WIDTH]]
    )
    table = session.createDataFrame(pd.DataFrame({"x": list(x)})).repartition(len(x) // BATCH // 4).cache()
    table.count()
    start = time.perf_counter()
    rows = table.select(read("x").alias("y")).toLocalIterator(prefetchPartitions=True)
    return timed((1 for _ in rows), start)


def beam(model: Model, x: np.ndarray) -> dict[str, float]:
    if model.library == "pyruntime":
        import_module("pyruntime.onnxruntime")
    import apache_beam
    from apache_beam.ml.inference.base import RunInference
    from apache_beam.ml.inference.onnx_inference import OnnxModelHandlerNumpy

    handler = OnnxModelHandlerNumpy(model.path, min_batch_size=BATCH, max_batch_size=BATCH)
    module = import_module("bench.engine_programs")  # Beam pickles functions of __main__, with copies of what they use
    times = module.arrived
    start = time.perf_counter()
    with apache_beam.Pipeline() as pipeline:
        results = pipeline | apache_beam.Create(list(x)) | RunInference(handler)
        _ = results | apache_beam.Map(module.arrive)
    assert len(times) == len(x)
    return {"first": times[0] - start, "rows": (len(x) - BATCH) / (times[-1] - times[0])}


def gunicorn(model: Model, x: np.ndarray) -> dict[str, float]:
    """Posts of BATCH rows to two workers that are forked from a process with the session."""
    import http.client
    import subprocess
    from concurrent.futures import ThreadPoolExecutor

    environment = {**os.environ, "BENCH_MODEL": json.dumps([model.library, model.path])}
    options = ["--preload", f"--workers={WORKERS}", "--threads=1", "--bind=127.0.0.1:0", "bench.engine_programs:app()"]
    start = time.perf_counter()
    command = [sys.executable, "-m", "gunicorn", *options]
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    line = ""
    while "Listening at" not in line:
        line = server.stderr.readline()  # type: ignore[union-attr]
    port = int(line.split("http://127.0.0.1:")[1].split()[0])

    def ask(part: np.ndarray) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/", part.tobytes())
        found = len(connection.getresponse().read()) // 64
        connection.close()
        return found

    parts = np.array_split(x, len(x) // BATCH)
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            return timed((count for one in ([parts[0]], parts[1:]) for count in pool.map(ask, one)), start)
    finally:
        server.terminate()
        server.communicate()


def app() -> Any:
    """The application of `gunicorn`, above."""
    model = Model(*json.loads(os.environ["BENCH_MODEL"]))
    session = opened(model.library, model.path)  # before the fork, for both

    def answer(environ: Any, start_response: Any) -> list[bytes]:
        x = np.frombuffer(environ["wsgi.input"].read(), np.float32).reshape(-1, WIDTH)
        start_response("200 OK", [])
        return [session.run(None, {"x": x})[0].tobytes()]

    return answer


ENGINES = {f.__name__: f for f in (ray_data, ray_serve, dask, spark, beam, gunicorn)}

if __name__ == "__main__":
    name, library, path, rows = sys.argv[1:]
    data = np.random.default_rng(0).random((int(rows), WIDTH), np.float32)
    print(json.dumps(ENGINES[name](Model(library, path), data)))
