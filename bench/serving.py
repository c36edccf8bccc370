"""python -m bench serving: the server of models under load on the loopback, beside the same server with onnxruntime in
it.

Both run at once, and the load goes to one of them at a time, in turns of ten seconds. Two clients by REST send digits
in JSON, two by gRPC pictures to MobileNet, and one client sends wrong requests, too large ones, halves of requests, and
goes away in the middle. Prints requests a second, percentiles of the latency in milliseconds, answers that were lost or
wrong, and the server's resident memory after its first turn and at the end. Exits with 1 if one was lost. Then it ends
ours in the middle of the load, which loses nothing either.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from bench import machine, models

ROOT = Path(__file__).parents[1]
KSERVE = ROOT / "build/serving"
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{KSERVE}"}
TURN = 10.0  # seconds
JSON = {"Content-Type": "application/json"}


@dataclass
class Server:
    """lost: descriptions of requests without the right answer; wrong: statuses of what was wrong"""

    name: str
    process: subprocess.Popen[str]
    port: int
    grpc: str
    milliseconds: dict[str, list[float]] = field(default_factory=lambda: {"REST": [], "gRPC": []})
    lost: list[str] = field(default_factory=list)
    wrong: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    rss: list[int] = field(default_factory=list)

    def sample(self) -> None:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        self.rss.append(int(status.split("VmRSS:")[1].split()[0]) >> 10)


@contextmanager
def started(name: str, command: list[str]) -> Iterator[Server]:
    process = subprocess.Popen(command, env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port, grpc = process.stdout.readline().split("http://127.0.0.1:")[1].strip().split("/v2 and, by gRPC, ")
        yield Server(name, process, int(port), grpc)
    finally:
        process.kill()
        process.wait()


# ── clients ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def by_rest(server: Server, ended: threading.Event) -> None:
    image = np.random.default_rng(0).random((1, 1, 28, 28), np.float32)
    (expected,) = onnxruntime.InferenceSession(models_of()["digits"]).run(None, {"image": image})
    given = {"name": "image", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": image.ravel().tolist()}
    body = json.dumps({"inputs": [given]})

    def ask(connection: http.client.HTTPConnection) -> bool:
        connection.request("POST", "/v2/models/digits/infer", body, JSON)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200 or not np.allclose(json.loads(text)["outputs"][0]["data"], expected[0], atol=1e-4):
            server.lost.append(f"REST {answer.status} {text[:80]!r}")
        return answer.getheader("connection") == "close"

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    repeat(server, ended, "REST", lambda: ask(connection))
    connection.close()


def by_grpc(server: Server, ended: threading.Event) -> None:
    import grpc
    from kserve.protocol.grpc.grpc_predict_v2_pb2 import ModelInferRequest, ServerReadyRequest
    from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub

    session = onnxruntime.InferenceSession(models_of()["mobilenet"])
    (declared,) = session.get_inputs()
    image = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)
    (expected, *_) = session.run(None, {declared.name: image})
    given = {"name": declared.name, "shape": image.shape, "datatype": "FP32"}
    request = ModelInferRequest(model_name="mobilenet", inputs=[given], raw_input_contents=[image.tobytes()])

    def ask(stub: Any) -> bool:
        answer = np.frombuffer(stub.ModelInfer(request).raw_output_contents[0], np.float32)
        if not np.allclose(answer, expected.ravel(), atol=1e-3, rtol=1e-3):
            server.lost.append("gRPC: another result")
        return not stub.ServerReady(ServerReadyRequest()).ready

    with grpc.insecure_channel(server.grpc) as channel:
        stub = GRPCInferenceServiceStub(channel)
        repeat(server, ended, "gRPC", lambda: ask(stub))


def repeat(server: Server, ended: threading.Event, way: str, ask: Callable[[], bool]) -> None:
    """Until the time is over, or the server has said that it ends."""
    is_over = False
    while not (ended.is_set() or is_over):
        start = time.perf_counter()
        try:
            is_over = ask()
        except Exception as error:
            server.lost.append(f"{way} {error!r}")
            return
        server.milliseconds[way].append(1000 * (time.perf_counter() - start))


def hostile(server: Server, ended: threading.Event) -> None:
    """Requests that are wrong, each in turn. Only answers below 500 are right, besides 503."""
    right = {"name": "image", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0.0] * 784}
    bodies = [
        json.dumps({"inputs": [{**right, **change}]}).encode()
        for change in ({"shape": [1, 1, 28, 27]}, {"datatype": "INT8"}, {"data": [None] * 784}, {"shape": [1 << 60]})
    ]
    bodies += [b"", b"{", b"[" * 50_000, os.urandom(1000), b" " * (3 << 20), bodies[0][:-20]]
    slow: list[socket.socket] = []
    for body in itertools.cycle(bodies):
        if ended.wait(0.02):
            break
        with suppress(OSError):  # the server may close before all of a large body has been sent
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request("POST", "/v2/models/digits/infer", body, JSON)
            status = connection.getresponse().status
            server.wrong[str(status)] += 1
            if status >= 500 and status != 503 or status < 400:
                server.lost.append(f"a wrong request: {status}")
            connection.close()
        with suppress(OSError):  # one that goes away, and one that sends the rest never
            for text in (f"Content-Length: {len(body) + 9}\r\n\r\n{{", ""):
                one = socket.create_connection(("127.0.0.1", server.port), timeout=60)
                one.sendall(f"POST /v2/models/digits/infer HTTP/1.1\r\nHost: a\r\n{text}".encode())
                slow.append(one)
        while len(slow) > 40:
            slow.pop(0).close()
    for one in slow:
        one.close()


def turn(server: Server, seconds: float, stop: bool = False) -> None:
    """The load for some seconds. stop: end the server in the middle"""
    ended = threading.Event()
    clients = [by_rest, by_rest, by_grpc, by_grpc, hostile]
    threads = [threading.Thread(target=client, args=(server, ended)) for client in clients]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    if stop:
        server.process.send_signal(signal.SIGTERM)
        for thread in threads[:-1]:
            thread.join()
    ended.set()
    for thread in threads:
        thread.join()
    server.seconds += time.perf_counter() - start


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────────


def models_of() -> dict[str, Path]:
    return {"digits": ROOT / "demo/digits/digits.onnx", "mobilenet": models.path("mobilenet_v2")}


def lines(server: Server) -> Iterator[str]:
    for way, times in server.milliseconds.items():
        p50, p95, p99, most = np.percentile(times, [50, 95, 99, 100])
        rate = len(times) / server.seconds
        yield f"| {server.name} | {way} | {len(times)} | {rate:.1f} | {p50:.1f} | {p95:.1f} | {p99:.1f} | {most:.0f} |"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench serving", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of load, of both servers together (default 1)")
    args = parser.parse_args(argv)
    subprocess.run([ROOT / "scripts/setup.sh", "serving"], check=True)
    sys.path.insert(0, str(KSERVE))
    named = [f"{name}={path}" for name, path in models_of().items()]
    serve = [sys.executable, "-m", "pyruntime.cli", "serve", "--port=0", "--grpc-port=0", "--body=2", "--drain=2"]
    peer = [sys.executable, "-m", "bench.serving_peer", *named]
    print(f"{machine.processor()}; {args.minutes:g} minutes, in turns of {TURN:g} s")
    with (
        started("pyruntime", [*serve, *(f"--model={one}" for one in named)]) as ours,
        started("onnxruntime", peer) as other,
    ):
        servers = [ours, other]
        for _ in range(max(round(60 * args.minutes / TURN / 2), 1)):
            for server in servers:
                turn(server, TURN)
                server.sample()
        turn(replace(ours, milliseconds={"REST": [], "gRPC": []}), 3.0, stop=True)
        status = ours.process.wait(60)
    print("| server | way | requests | a second | p50 | p95 | p99 | most |\n|---|---|---|---|---|---|---|---|")
    for server in servers:
        print(*lines(server), sep="\n")
    for server in servers:
        print(f"{server.name}: {server.rss[0]} MB resident after the first turn, {server.rss[-1]} at the end;", end=" ")
        print(f"{sum(server.wrong.values())} wrong requests, answered by {dict(server.wrong)}; {len(server.lost)} lost")
        print(*server.lost[:5], sep="\n", end="\n" if server.lost else "")
    print(f"pyruntime ended with status {status} in the middle of the load")
    return int(any(server.lost for server in servers) or status != 0)
