"""A Flower app: clients train on digits of their own, and the server averages their weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from pyruntime import TrainingSession
from pyruntime.api.flower import Client, arrays_of, flower_app, load_arrays

BATCH = 32


def digits(data: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pictures, labels, and which are held out from training."""
    rows = np.frombuffer((data / "digits.bin").read_bytes(), np.uint8).reshape(-1, 65)
    pictures = rows[:, 1:].reshape(-1, 1, 8, 8).astype(np.float32) / 16
    return pictures, rows[:, 0].astype(np.int64), np.arange(len(rows)) % 5 == 4


def session(data: Path) -> TrainingSession:
    loss, optimizer = {"cross_entropy": "logits"}, {"sgd": {"rate": 0.2}}
    return TrainingSession(data / "network.onnx", loss=loss, optimizer=optimizer, proximal=0.1)


def client(context: Context) -> Client:
    """Of one node: `data` is its folder, and `first` and `last` are the digits that it has."""
    node = context.node_config
    data = Path(str(node["data"]))
    pictures, labels, is_held = digits(data)
    (mine,) = np.nonzero((labels >= node["first"]) & (labels <= node["last"]) & ~is_held)

    def batches(config: Mapping[str, Any]) -> Iterator[dict[str, np.ndarray]]:
        order = np.random.default_rng(config["server-round"]).permutation(mine)
        for n in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[n : n + BATCH]
            yield {"image": pictures[rows], "target": labels[rows]}

    return Client(session(data), batches, [{"image": pictures[is_held], "target": labels[is_held]}])


app = flower_app(client)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    data, rounds = Path(str(context.run_config["data"])), int(context.run_config["rounds"])
    trained, (pictures, labels, is_held) = session(data), digits(data)
    right: list[float] = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        load_arrays(trained, arrays)
        result = trained.evaluate({"image": pictures[is_held], "target": labels[is_held]}, ["logits"])
        right.append(float((result["logits"].argmax(1) == labels[is_held]).mean()))
        return MetricRecord({"loss": result["loss"], "right": right[-1]})

    FedAvg(min_available_nodes=2).start(grid, arrays_of(trained), num_rounds=rounds, evaluate_fn=evaluate)
    before, after = (f"{100 * x:.1f} %" for x in (right[0], right[-1]))
    print(f"Held-out digits read rightly: {before} before, {after} after {rounds} rounds of two clients.")
