"""examples/gunicorn on the real server: a session that is opened once and forked into workers with threads."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from kit.docs import ROOT

EXAMPLE = ROOT / "examples/gunicorn"


@pytest.fixture
def served() -> Iterator[tuple[subprocess.Popen[str], int]]:
    options = ["--preload", "--workers=2", "--threads=2", "--bind=127.0.0.1:0", "app:app"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options], cwd=EXAMPLE, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    lines: list[str] = []
    while len(found := re.findall(r"Listening at: \S+:(\d+)|Booting worker", "".join(lines))) < 3:
        lines.append(server.stderr.readline())
        assert lines[-1], "".join(lines)
    try:
        yield server, int(next(filter(None, found)))
        server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=30)
        assert server.returncode == 0 and "Error" not in rest and "Exception" not in rest, rest
    finally:
        server.kill()
        server.communicate()


def ask(port: int, body: Any = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET" if body is None else "POST", "/", None if body is None else json.dumps(body))
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_workers_share_a_session(served: tuple[subprocess.Popen[str], int]) -> None:
    server, port = served
    images = np.random.default_rng(0).random((40, 1, 28, 28), np.float32)
    (expected,) = onnxruntime.InferenceSession(EXAMPLE / "digits.onnx").run(None, {"image": images})
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda image: ask(port, image[0].tolist()), images))
    assert found == [(200, f"A picture is read as {digit}.") for digit in expected.argmax(1)]
    assert [ask(port, body)[0] for body in ([1], "a", {}, [[1.0] * 28] * 29)] == [400] * 4
    assert ask(port) == (200, "A blank is read as 1.")
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    if children.exists():  # Linux
        os.kill(int(children.read_text().split()[0]), signal.SIGKILL)  # another is forked in its place
        assert {ask(port)[1] for _ in range(20)} == {"A blank is read as 1."}
