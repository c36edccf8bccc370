"""Averages the weights that two pages train, each with digits of its own, and compares with training on all digits."""

from __future__ import annotations

import argparse
import secrets
import threading
from functools import partial
from http import HTTPStatus
from http.cookies import SimpleCookie
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from pyruntime import TrainingSession

HERE = Path(__file__).parent
DIST = HERE / "../../dist"
CLIENTS = {"a": range(7), "b": range(3, 10)}  # the digits that each has
ROUNDS, BATCH = 12, 32
OPTIONS: dict[str, Any] = {"loss": {"cross_entropy": "logits"}, "optimizer": {"sgd": {"rate": 0.2}}}
LIMIT = 5.0  # of the norm of what a client changes in a round: a larger change is scaled down
MOST = 10_000  # pictures that a client may claim to have
WAIT = 120  # seconds for the other clients of a round


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Pictures (N, 1, 8, 8) from 0 to 1, and labels. Every fifth is held out from training."""
    rows = np.frombuffer((HERE / "digits.bin").read_bytes(), np.uint8).reshape(-1, 65)
    return rows[:, 1:].reshape(-1, 1, 8, 8).astype(np.float32) / 16, rows[:, 0].astype(np.int64)


class Average:
    """The average of all rounds. A client gets it once all have sent their weights, so nobody sees another's alone."""

    def __init__(self, start: np.ndarray) -> None:
        self.current, self.round = start, 0
        self.given: dict[str, tuple[np.ndarray, int]] = {}
        self.changed = threading.Condition()

    def add(self, client: str, number: int, data: bytes, count: int) -> np.ndarray:
        """Errors: ValueError for what does not fit, TimeoutError"""
        vector = np.frombuffer(data, np.float32)
        if vector.size != self.current.size or not np.isfinite(vector).all() or not 0 < count <= MOST:
            raise ValueError("these are no weights")
        with self.changed:
            if number != self.round or client in self.given:
                raise ValueError("not in this round")
            change = vector - self.current
            self.given[client] = change * min(1.0, LIMIT / (float(np.linalg.norm(change)) + 1e-12)), count
            if len(self.given) == len(CLIENTS):
                total = sum(n for _, n in self.given.values())
                self.current = self.current + sum(c * np.float32(n / total) for c, n in self.given.values())
                self.round, self.given = self.round + 1, {}
                self.changed.notify_all()
            elif not self.changed.wait_for(lambda: self.round > number, WAIT):
                self.given.pop(client)
                raise TimeoutError
            return self.current


class Handler(SimpleHTTPRequestHandler):
    """Serves the pages and this package, and takes weights from pages of this address only."""

    timeout = 60  # seconds for a request to arrive

    def __init__(self, *args: Any, average: Average, results: Results, token: str, **kwargs: Any) -> None:
        self.average, self.results, self.token = average, results, token
        super().__init__(*args, directory=str(HERE), **kwargs)

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not self._is_for_us():
            self.send_error(HTTPStatus.FORBIDDEN)
        elif path == "/result":
            self._answer(self.results.wait().encode(), "text/plain")
        elif path in ("/", "/client.html", "/network.onnx", "/digits.bin") or path.startswith("/pyruntime/"):
            super().do_GET()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        size = 4 * self.average.current.size
        if not self._is_for_us() or not self._has_token() or url.path != "/round":
            self.send_error(HTTPStatus.FORBIDDEN)
        elif query.get("client") not in CLIENTS or self.headers.get("Content-Length") != str(size):
            self.send_error(HTTPStatus.BAD_REQUEST)
        else:
            try:
                found = self.average.add(
                    query["client"], int(query["round"]), self.rfile.read(size), int(query["count"])
                )
                self._answer(found.astype(np.float32).tobytes(), "application/octet-stream")
            except (ValueError, KeyError, TimeoutError):
                self.send_error(HTTPStatus.CONFLICT)

    def _is_for_us(self) -> bool:
        """Not a request that another site's page makes, nor one under another name for this machine."""
        host = f"127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
        return self.headers.get("Host") == host and self.headers.get("Origin", f"http://{host}") == f"http://{host}"

    def _has_token(self) -> bool:
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("token")
        return cookie is not None and secrets.compare_digest(cookie.value, self.token)

    def _answer(self, data: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def end_headers(self) -> None:
        if urlsplit(self.path).path == "/":
            self.send_header("Set-Cookie", f"token={self.token}; HttpOnly; SameSite=Strict; Path=/")
        super().end_headers()

    def translate_path(self, path: str) -> str:
        plain = urlsplit(path).path
        if plain.startswith("/pyruntime/"):
            inside = super().translate_path(plain.removeprefix("/pyruntime"))
            return str(DIST / Path(inside).relative_to(HERE))
        return super().translate_path(path)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Results:
    """A text that comes later."""

    def __init__(self) -> None:
        self.text, self.done = "", threading.Event()

    def wait(self) -> str:
        self.done.wait()
        return self.text

    def set(self, text: str) -> None:
        self.text = text
        self.done.set()


def accuracy(session: TrainingSession, pictures: np.ndarray, labels: np.ndarray) -> float:
    logits = session.evaluate({"image": pictures, "target": labels}, ["logits"])["logits"]
    return float((logits.argmax(1) == labels).mean())


def trained_alone(pictures: np.ndarray, labels: np.ndarray) -> TrainingSession:
    """With as many epochs as a client makes."""
    session, random = TrainingSession(HERE / "network.onnx", **OPTIONS), np.random.default_rng(0)
    for _ in range(ROUNDS):
        order = random.permutation(len(labels))
        for n in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[n : n + BATCH]
            session.step({"image": pictures[rows], "target": labels[rows]})
    return session


def report(average: Average, session: TrainingSession) -> str:
    """Accuracy on the digits that nobody trained with."""
    pictures, labels = digits()
    is_held = np.arange(len(labels)) % 5 == 4
    held = pictures[is_held], labels[is_held]
    session.load_parameters_buffer(average.current)
    parts = [np.isin(labels, list(of)) & ~is_held for of in CLIENTS.values()]
    alone = [accuracy(trained_alone(pictures[p], labels[p]), *held) for p in parts]
    whole = np.concatenate([np.flatnonzero(p) for p in parts])
    both = accuracy(trained_alone(pictures[whole], labels[whole]), *held)
    texts = [f"{100 * x:.1f} %" for x in (accuracy(session, *held), both, *alone)]
    return (
        f"Held-out digits read rightly: {texts[0]} by the average of two pages, {texts[1]} after training on both "
        f"sets, {texts[2]} and {texts[3]} after training on one alone."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    session = TrainingSession(HERE / "network.onnx", **OPTIONS)
    average, results = Average(session.get_contiguous_parameters()), Results()
    handler = partial(Handler, average=average, results=results, token=secrets.token_urlsafe(32))
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    with average.changed:
        average.changed.wait_for(lambda: average.round == ROUNDS)
    text = report(average, session)
    print(text, flush=True)
    results.set(text)
    threading.Event().wait()


if __name__ == "__main__":
    main()
