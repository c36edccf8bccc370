"""A training session as a client of Flower (https://flower.ai), which averages the weights of many:

    from pyruntime.api.flower import flower_client

Needs `pip install "pyruntime-onnx[native,flower]"`. See docs/training.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput
from pyruntime.native.sessions.training import TrainingSession

Feeds = Mapping[str, Any]
Batches = Callable[[Mapping[str, Any]], Iterable[Feeds]]


def flower_client(session: TrainingSession, batches: Batches, held: Iterable[Feeds] = ()) -> Any:
    """A `NumPyClient`, whose parameters are the session's trained weights, in the order of `parameters()`.

    batches: gets the round's configuration; what it returns is trained with, in this order
    held: batches of evaluation, with targets; the client tells their mean loss
    """
    from flwr.client import NumPyClient

    class Client(NumPyClient):  # type: ignore[misc]
        def get_parameters(self, config: Mapping[str, Any]) -> list[np.ndarray]:
            weights = session.weights()
            return [weights[p.name] for p in session.parameters()]

        def fit(self, parameters: list[np.ndarray], config: Mapping[str, Any]) -> tuple[list[np.ndarray], int, Any]:
            load_parameters(session, parameters)
            count, losses = 0, []
            for feeds in batches(config):
                losses.append(session.step(feeds).loss)
                count += rows_of(feeds)
            return self.get_parameters(config), count, {"loss": float(np.mean(losses))} if losses else {}

        def evaluate(self, parameters: list[np.ndarray], config: Mapping[str, Any]) -> tuple[float, int, Any]:
            load_parameters(session, parameters)
            found = [(session.evaluate(feeds)["loss"], rows_of(feeds)) for feeds in held]
            count = sum(n for _, n in found)
            return sum(loss * n for loss, n in found) / max(count, 1), count, {}

    return Client()


def load_parameters(session: TrainingSession, parameters: list[np.ndarray]) -> None:
    """Errors: InvalidInput for arrays of other numbers or shapes, or numbers that are not finite"""
    names = [p.name for p in session.parameters()]
    if len(names) != len(parameters):
        raise InvalidInput(f"the server sent {len(parameters)} arrays, the session trains {len(names)} weights")
    bad = [name for name, x in zip(names, parameters, strict=True) if not np.isfinite(x).all()]
    if bad:
        raise InvalidInput(f'the server sent "{bad[0]}" with numbers that are not finite')
    session.set_weights(dict(zip(names, parameters, strict=True)))


def rows_of(feeds: Feeds) -> int:
    """How many examples a batch has."""
    return max((np.shape(x)[0] for x in feeds.values() if np.ndim(x)), default=0)
