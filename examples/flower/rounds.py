"""Rounds of Flower on this machine: a server and two clients in processes of their own, with different digits."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # or else Flower tells its makers that it runs

import numpy as np
from flwr.client import start_client
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerConfig, start_server
from flwr.server.strategy import FedAvg

from pyruntime import TrainingSession
from pyruntime.api.flower import flower_client, load_parameters

DATA = Path(__file__).parent / "../federated"
CLIENTS = {"a": range(7), "b": range(3, 10)}
ROUNDS, BATCH = 4, 32


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pictures, labels, and which are held out from training."""
    rows = np.frombuffer((DATA / "digits.bin").read_bytes(), np.uint8).reshape(-1, 65)
    return (
        rows[:, 1:].reshape(-1, 1, 8, 8).astype(np.float32) / 16,
        rows[:, 0].astype(np.int64),
        np.arange(len(rows)) % 5 == 4,
    )


def session() -> TrainingSession:
    options: dict[str, Any] = {
        "loss": {"cross_entropy": "logits"},
        "optimizer": {"sgd": {"rate": 0.2}},
        "proximal": 0.1,
    }
    return TrainingSession(DATA / "network.onnx", **options)


def client(name: str, address: str) -> None:
    pictures, labels, is_held = digits()
    (mine,) = np.nonzero(np.isin(labels, list(CLIENTS[name])) & ~is_held)
    random = np.random.default_rng(0)

    def batches(config: Any) -> Iterator[dict[str, np.ndarray]]:
        order = random.permutation(mine)
        for n in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[n : n + BATCH]
            yield {"image": pictures[rows], "target": labels[rows]}

    held = [{"image": pictures[is_held], "target": labels[is_held]}]
    # beyond this machine: root_certificates in place of insecure
    start_client(server_address=address, client=flower_client(session(), batches, held).to_client(), insecure=True)


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    waits = "import socket, time\nwhile socket.socket().connect_ex(('{}', {})): time.sleep(0.1)\n".format(
        *address.split(":")
    )
    starts = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport rounds\n"
    started = [
        subprocess.Popen([sys.executable, "-c", f"{starts}{waits}rounds.client({name!r}, {address!r})"])
        for name in CLIENTS
    ]
    trained, (pictures, labels, is_held) = session(), digits()
    found: list[float] = []

    def evaluate(number: int, parameters: Any, config: Any) -> tuple[float, dict[str, Any]]:
        load_parameters(trained, parameters)
        result = trained.evaluate({"image": pictures[is_held], "target": labels[is_held]}, ["logits"])
        found.append(float((result["logits"].argmax(1) == labels[is_held]).mean()))
        return result["loss"], {}

    start = ndarrays_to_parameters([trained.weights()[p.name] for p in trained.parameters()])
    strategy = FedAvg(min_fit_clients=2, min_available_clients=2, initial_parameters=start, evaluate_fn=evaluate)
    begun = time.monotonic()
    start_server(server_address=address, config=ServerConfig(num_rounds=ROUNDS), strategy=strategy)
    seconds = time.monotonic() - begun
    for process in started:
        process.wait()
    before, after = (f"{100 * x:.1f} %" for x in (found[0], found[-1]))
    text = f"{before} before, {after} after {ROUNDS} rounds of two clients, in {seconds:.1f} s."
    print(f"Held-out digits read rightly: {text}")


logging.getLogger("flwr").setLevel(logging.ERROR)
if __name__ == "__main__":
    main()
