"""`pyruntime serve --model`: a real server process on the loopback, and clients that mean well or not. Expected outputs
are onnxruntime's. `scripts/setup.sh serving` installs KServe, whose own clients run in processes of their own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest

from kit.docs import ROOT
from tests.serving.models import ENDLESS, FIXED, LOGARITHM, TEXTS

KSERVE = ROOT / "build/serving"
DIGITS = ROOT / "demo/digits/digits.onnx"
BLANK = {"name": "image", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0.0] * 784}
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{KSERVE}"}
STEP = {"inputs": [{"name": "x", "shape": [64, 64], "datatype": "FP32", "data": [1.0] * 4096}]}
JSON = {"Content-Type": "application/json"}


class Served(NamedTuple):
    process: subprocess.Popen[str]
    port: int
    grpc: str

    @property
    def rest(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(self, method: str, path: str, body: Any = b"", headers: dict[str, str] | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, JSON if headers is None else headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text[:1] == b"{" else text.decode()

    def infer(self, body: Any, model: str = "digits", headers: dict[str, str] | None = None) -> tuple[int, Any]:
        return self.send("POST", f"/v2/models/{model}/infer", body, headers)

    def metric(self, name: str) -> float:
        lines = self.send("GET", "/metrics")[1].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


@contextmanager
def serving(models: dict[str, Path], *options: str) -> Iterator[Served]:
    assert KSERVE.is_dir(), "scripts/setup.sh serving installs it"
    named = [f"--model={name}={path}" for name, path in models.items()]
    command = [sys.executable, "-m", "pyruntime.cli", "serve", *named, "--port=0", "--grpc-port=0", *options]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()[-3000:]
        rest, grpc = line.split("http://127.0.0.1:")[1].strip().split("/v2 and, by gRPC, ")
        yield Served(process, int(rest), grpc)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    found = {"digits": DIGITS}
    for name, text in {"endless": ENDLESS, "logarithm": LOGARITHM, "texts": TEXTS, "fixed": FIXED}.items():
        found[name] = folder / f"{name}.onnx"
        onnx.save(onnx.parser.parse_model(text), found[name])
    return found


@pytest.fixture(scope="module")
def server(models: dict[str, Path]) -> Iterator[Served]:
    with serving(
        {name: path for name, path in models.items() if name != "fixed"}, "--body=1", "--requests=8", "--timeout=20"
    ) as found:
        yield found


def script(name: str, *arguments: str) -> subprocess.Popen[str]:
    path = ROOT / f"tests/serving/{name}.py"
    return subprocess.Popen([sys.executable, path, *arguments], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> Any:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])


# ── well-meaning clients ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_librarys_clients(server: Served) -> None:
    found = told(script("clients", server.rest, server.grpc))
    images = np.random.default_rng(0).random((3, 1, 28, 28), np.float32)
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": images})
    for way, count in (("rest", 4), ("grpc", 2)):
        assert found[way]["ready"] == [True] * 3 and found[way]["ids"] == ["7"] * count
        for output in found[way]["outputs"]:
            np.testing.assert_allclose(output, expected, atol=1e-5)


def test_metadata_and_texts(server: Served) -> None:
    assert server.send("GET", "/v2/models")[1] == {"models": ["digits", "endless", "logarithm", "texts"]}
    about = server.send("GET", "/v2/models/digits")[1]
    assert about["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 28, 28]}]
    texts = {"inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "data": ["Ä", "b"]}]}
    status, answer = server.infer(texts, "texts")
    assert status == 200 and answer["outputs"][0]["data"] == ["äx", "bx"]


def test_requests_run_together(models: dict[str, Path]) -> None:
    with serving({"digits": models["digits"]}, "--batch=8", "--wait=50") as server:
        answers: list[tuple[int, Any]] = []
        threads = [
            threading.Thread(target=lambda: answers.append(server.infer({"inputs": [BLANK]}))) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": np.zeros((1, 1, 28, 28), np.float32)})
        for status, answer in answers:
            assert status == 200
            np.testing.assert_allclose([answer["outputs"][0]["data"]], expected, atol=1e-5)
        assert server.metric("pyruntime_session_runs") < 16 == server.metric("pyruntime_requests_total")


# ── hostile clients ─────────────────────────────────────────────────────────────────────────────────────────────────

OCTETS = {"Content-Type": "application/octet-stream"}
HEAD = json.dumps({"inputs": [{**BLANK, "data": None, "parameters": {"binary_data_size": 3136}}]}).encode()
BINARY = {**OCTETS, "Inference-Header-Content-Length": str(len(HEAD))}
HOSTILE: dict[str, tuple[Any, int, dict[str, str]]] = {
    **{
        f"{key} {json.dumps(value)[:20]}": ({"inputs": [{**BLANK, key: value}]}, 400, JSON)
        for key, value in [
            ("shape", [1, 1, 28, 27]), ("shape", [-1, 1, 28, 28]), ("shape", [1 << 62, 4]), ("shape", "a"),
            ("shape", [1, 1, 784, 1]), ("shape", [0, 1, 28, 28]), ("shape", [1.5, 1, 28, 28]),
            ("datatype", "FP64"), ("datatype", "?"), ("datatype", None), ("name", "x"), ("name", None),
            ("data", [None] * 784), ("data", ["1"] * 784), ("data", [True] * 784), ("data", [[0.0], [0.0, 1.0]]),
            ("data", 5), ("data", []), ("data", [0.0] * 785), ("data", [{}] * 784), ("data", [10**400] + [0.0] * 783),
        ]
    },
    "twice": ({"inputs": [BLANK, BLANK]}, 400, JSON),
    "no inputs": ({"inputs": []}, 400, JSON),
    "an output that is not there": ({"inputs": [BLANK], "outputs": [{"name": "x"}]}, 400, JSON),
    "a text as time-out": ({"inputs": [BLANK], "parameters": {"timeout": "x"}}, 400, JSON),
    "a negative time-out": ({"inputs": [BLANK], "parameters": {"timeout": -1}}, 400, JSON),
    "empty": (b"", 400, JSON),
    "truncated": (json.dumps({"inputs": [BLANK]}).encode()[:-9], 400, JSON),
    "deep": (b"[" * 100_000, 400, JSON),
    "not UTF-8": (b"\xff\xfe{", 400, JSON),
    "another type of content": (b"a=b", 400, {"Content-Type": "application/x-www-form-urlencoded"}),
    "binary": (HEAD + bytes(3136), 200, BINARY),
    "binary, truncated": (HEAD + bytes(3135), 400, BINARY),
    "binary, without a header": (HEAD + bytes(3136), 400, OCTETS),
    "binary, wrong header": (HEAD + bytes(3136), 400, {**OCTETS, "Inference-Header-Content-Length": "-5"}),
    "binary, no number": (HEAD + bytes(3136), 400, {**OCTETS, "Inference-Header-Content-Length": "x"}),
    "more than the limit": (b" " * (2 << 20), 413, JSON),
    "more than the limit, announced": (b"{", 413, {**JSON, "Content-Length": "99999999999"}),
}  # fmt: skip


@contextmanager
def good_requests(server: Served) -> Iterator[None]:
    """Beside what is tested, all of which must be answered."""
    ended = threading.Event()
    found: list[int] = []

    def send() -> None:
        while not ended.is_set():
            found.append(server.infer({"inputs": [BLANK]})[0])

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert len(found) > 3 and set(found) == {200}


def test_hostile_requests(server: Served) -> None:
    with good_requests(server):
        for name, (body, expected, headers) in HOSTILE.items():
            status, answer = server.infer(body, headers=headers)
            assert status == expected, f"{name}: {status} {answer}"
            assert status == 200 or (answer["error"] and str(ROOT) not in answer["error"]), name
    assert server.infer({"inputs": [BLANK]}, "nothing")[0] == 404
    assert server.send("POST", "/v2/repository/models/digits/unload")[0] == 501
    assert server.send("POST", "/v1/models/digits:predict", {"instances": [1]})[0] == 501
    assert server.send("GET", "/v2/nothing")[0] == 404
    status, answer = server.infer(
        {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0]}]}, "logarithm"
    )
    assert status == 400 and "JSON has none" in answer["error"]  # minus infinity, which JSON would make null


def test_hostile_requests_by_grpc(server: Served) -> None:
    with good_requests(server):
        found = told(script("grpc_hostile", server.grpc))
    expected = dict.fromkeys(found, "INVALID_ARGUMENT") | {
        "right": "OK",
        "right, listed": "OK",
        "another model": "NOT_FOUND",
        "unload": "UNIMPLEMENTED",
        "a deadline": "DEADLINE_EXCEEDED",
        "more than the limit": "RESOURCE_EXHAUSTED",
        "more than the limit, again": "RESOURCE_EXHAUSTED",
    }
    assert found == expected


def test_slow_clients(server: Served) -> None:
    """Whose headers, or bodies, do not come: the server closes, and answers others meanwhile."""
    head = "POST /v2/models/digits/infer HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    texts = ["", head, f"{head}Content-Length: 500\r\n\r\n{{"]
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(30)]
    for number, one in enumerate(slow):
        one.sendall(texts[number % 3].encode())
    with good_requests(server):
        for number, one in enumerate(slow):
            one.settimeout(30)
            answer = one.recv(1000)
            assert answer.startswith(b"HTTP/1.1 408") if number % 3 == 2 else not answer
            one.close()


# ── time-outs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def stopped_after(server: Served, before: float) -> None:
    end = time.monotonic() + 15
    while server.metric("pyruntime_session_stopped") <= before:
        assert time.monotonic() < end, "the run goes on"
        time.sleep(0.1)


def test_a_time_out_stops_the_run(server: Served) -> None:
    before = server.metric("pyruntime_session_stopped")
    start = time.monotonic()
    status, answer = server.infer({**STEP, "parameters": {"timeout": 500_000}}, "endless")
    assert status == 504 and "0.5 s" in answer["error"] and time.monotonic() - start < 10
    stopped_after(server, before)


def test_a_client_that_goes_stops_the_run(server: Served) -> None:
    before = server.metric("pyruntime_session_stopped")
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v2/models/endless/infer", json.dumps(STEP), JSON)
    time.sleep(1)
    connection.close()
    stopped_after(server, before)


def test_more_requests_than_the_limit(server: Served) -> None:
    answers: list[int] = []
    body = {**STEP, "parameters": {"timeout": 3_000_000}}
    threads = [threading.Thread(target=lambda: answers.append(server.infer(body, "endless")[0])) for _ in range(12)]
    for thread in threads:
        thread.start()
    with good_requests(server):
        for thread in threads:
            thread.join()
    assert sorted(answers) == [503] * 4 + [504] * 8


# ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_sigterm_under_load_loses_nothing(models: dict[str, Path]) -> None:
    """Clients send until the server says that it ends: by `Connection: close`, or by readiness."""
    with serving({"digits": models["digits"]}, "--drain=3") as server:
        answers: list[int] = []

        def send() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            closes = False
            while not closes:
                connection.request("POST", "/v2/models/digits/infer", json.dumps({"inputs": [BLANK]}), JSON)
                answer = connection.getresponse()
                answers.append(answer.status)
                answer.read()
                closes = answer.getheader("connection") == "close"

        threads = [threading.Thread(target=send) for _ in range(4)]
        by_grpc = [script("grpc_load", server.grpc) for _ in range(2)]
        for thread in threads:
            thread.start()
        for process in by_grpc:
            assert process.stdout is not None and process.stdout.readline() == "begins\n"
        time.sleep(1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert server.send("GET", "/v2/health/ready")[0] == 503 and server.send("GET", "/v2/health/live")[0] == 200
        assert server.infer({"inputs": [BLANK]})[0] == 200  # from who has not seen it yet
        for thread in threads:
            thread.join()
        found = [told(process) for process in by_grpc]
        assert server.process.wait(30) == 0
        assert len(answers) > 20 and set(answers) == {200}
        assert all(one["answered"] > 0 and not one["refused"] for one in found)


def test_what_runs_at_the_end_is_answered(models: dict[str, Path]) -> None:
    """A request longer than the drain; the server waits for it, here until its time-out."""
    with serving({"endless": models["endless"]}, "--drain=0") as server:
        answers: list[int] = []
        body = {**STEP, "parameters": {"timeout": 4_000_000}}
        thread = threading.Thread(target=lambda: answers.append(server.infer(body, "endless")[0]))
        thread.start()
        time.sleep(1)
        server.process.send_signal(signal.SIGTERM)
        thread.join()
        assert answers == [504] and server.process.wait(30) == 0


def test_mistakes_of_the_command_line(models: dict[str, Path]) -> None:
    cases = {
        "is not of the form": ["--model=digits"],
        "--batch: 0 is not from 1": [f"--model=d={DIGITS}", "--batch=0"],
        "cannot run batches": [f"--model=d={models['fixed']}", "--batch=2"],
        "there is no file": ["--model=d=nothing.onnx"],
        "test_serving.py: this is not an ONNX model": [f"--model=d={DIGITS}", f"--model=e={__file__}"],
        'provider "foo" is not known': [f"--model=d={DIGITS}", "--provider=foo"],
    }
    for text, arguments in cases.items():
        command = [sys.executable, "-m", "pyruntime.cli", "serve", *arguments]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and text in done.stderr, done.stderr
