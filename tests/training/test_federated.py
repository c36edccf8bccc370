"""The program of examples/federated: what it averages, and what it refuses."""

from __future__ import annotations

import http.client
import importlib.util
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from kit.chromium import ROOT

_spec = importlib.util.spec_from_file_location("average", ROOT / "examples/federated/average.py")
assert _spec and _spec.loader
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)

START = np.ones(5, np.float32)


@pytest.fixture
def server() -> Iterator[Any]:
    average = program.Average(START)
    handler = partial(program.Handler, average=average, results=program.Results(), token="secret")
    made = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def ask(server: Any, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    length = {} if body is None else {"Content-Length": str(len(body))}
    given = {"Host": f"127.0.0.1:{server.server_port}", "Cookie": "token=secret", **length, **headers}
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    data = answer.status, answer.read()
    connection.close()
    return data


def send(server: Any, client: str, vector: np.ndarray, number: int = 0, count: object = 10, **headers: str) -> Any:
    path = f"/round?client={client}&round={number}&count={count}"
    return ask(server, "POST", path, vector.astype(np.float32).tobytes(), **headers)


def test_clients_get_the_average_once_all_have_sent(server: Any) -> None:
    far = START + 1e6 * np.eye(5)[0]  # a change with this norm is scaled down to LIMIT
    answers: dict[str, Any] = {}
    first = threading.Thread(target=lambda: answers.update(a=send(server, "a", START + 1, count=30)))
    first.start()
    first.join(0.3)
    assert first.is_alive() and not answers
    answers["b"] = send(server, "b", far)
    first.join()
    expected = START + 0.75 * np.ones(5) + 0.25 * program.LIMIT * np.eye(5)[0]
    for status, data in answers.values():
        assert status == 200
        np.testing.assert_allclose(np.frombuffer(data, np.float32), expected, rtol=1e-5)
    assert send(server, "a", START)[0] == 409  # the round is over


@pytest.mark.parametrize(
    ("status", "given"),
    [
        (403, {"Cookie": "token=other"}), (403, {"Cookie": ""}), (403, {"Host": "evil.example"}),
        (403, {"Origin": "http://evil.example"}), (400, {"client": "c"}), (400, {"vector": START[1:]}),
        (400, {"Content-Length": "x"}), (409, {"vector": START * np.nan}), (409, {"count": 10**9}),
        (409, {"count": -1}), (409, {"count": "x"}), (409, {"number": 1}),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_refused(server: Any, status: int, given: dict[str, Any]) -> None:
    assert send(server, **{"client": "a", "vector": START, **given})[0] == status
    assert not server.RequestHandlerClass.keywords["average"].given


def test_no_other_file_is_served(server: Any) -> None:
    for path in (
        "/average.py",
        "/pyruntime/../../pyproject.toml",
        "/pyruntime/%2e%2e/%2e%2e/pyproject.toml",
        "//etc/passwd",
    ):
        assert ask(server, "GET", path)[0] == 404
    assert ask(server, "GET", "/client.html")[0] == 200
