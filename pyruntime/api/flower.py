"""A training session as a client of Flower (https://flower.ai), which averages the weights of many:

    from pyruntime.api.flower import flower_app

Needs `pip install "pyruntime-onnx[native,flower]"`. See docs/training.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pyruntime.errors import InvalidInput
from pyruntime.native.training.session import TrainingSession

Feeds = Mapping[str, Any]
Batches = Callable[[Mapping[str, Any]], Iterable[Feeds]]
STATE, CHECKPOINT = "pyruntime", "checkpoint"  # where Flower keeps a client's moments from round to round


class Client(NamedTuple):
    """What a Flower app trains with. batches: gets the round's configuration; what it returns is trained with, in this
    order; held: batches of evaluation, with targets"""

    session: TrainingSession
    batches: Batches
    held: Iterable[Feeds] = ()


def flower_app(opened: Callable[[Any], Client]) -> Any:
    """A `ClientApp` for `flower-supernode`, `flwr run` and simulations, which takes and gives `ArrayRecord`s of the
    trained weights by name.

    opened: gets Flower's `Context` (`node_config`, `run_config`) and opens the client of this node for a message, after
    which the session is released. Moments of the optimiser are kept in `context.state`, so they never leave the node.
    """
    from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def train(message: Any, context: Any) -> Any:
        session, batches, _ = opened(context)
        with session:
            if STATE in context.state:
                session.load(context.state[STATE][CHECKPOINT])
            load_arrays(session, _only(message.content.array_records))
            loss, count = fit(session, batches(_only(message.content.config_records)))
            context.state[STATE] = ConfigRecord({CHECKPOINT: session.state()})
            records = {"arrays": arrays_of(session), "metrics": MetricRecord({"loss": loss, "num-examples": count})}
        return Message(RecordDict(records), reply_to=message)

    @app.evaluate()  # type: ignore[untyped-decorator]
    def evaluate(message: Any, context: Any) -> Any:
        session, _, held = opened(context)
        with session:
            load_arrays(session, _only(message.content.array_records))
            loss, count = loss_of(session, held)
        metrics = MetricRecord({"loss": loss, "num-examples": count})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def arrays_of(session: TrainingSession) -> Any:
    """The trained weights as Flower's `ArrayRecord`, by name; a server begins with them."""
    from flwr.app import Array, ArrayRecord

    weights = session.weights()
    return ArrayRecord({p.name: Array(weights[p.name]) for p in session.parameters()})


def load_arrays(session: TrainingSession, arrays: Mapping[str, Any]) -> None:
    """Errors: InvalidInput for other names or shapes, or numbers that are not finite"""
    names = [p.name for p in session.parameters()]
    if set(names) != set(arrays):
        raise InvalidInput(f"the server sent weights {', '.join(arrays)}, the session trains {', '.join(names)}")
    load_parameters(session, [arrays[name].numpy() for name in names])


def _only(records: Mapping[str, Any]) -> Any:
    """Strategies may choose the key of the record."""
    if len(records) != 1:
        raise InvalidInput(f"one record of a kind is expected in a message, not {len(records)}")
    return next(iter(records.values()))


def fit(session: TrainingSession, batches: Iterable[Feeds]) -> tuple[float, int]:
    """Steps; the mean of their losses, and how many examples they had."""
    count, losses = 0, []
    for feeds in batches:
        losses.append(session.step(feeds).loss)
        count += rows_of(feeds)
    return float(np.mean(losses)) if losses else 0.0, count


def loss_of(session: TrainingSession, held: Iterable[Feeds]) -> tuple[float, int]:
    """The mean loss of the examples, and how many there are."""
    found = [(session.evaluate(feeds)["loss"], rows_of(feeds)) for feeds in held]
    count = sum(n for _, n in found)
    return float(sum(loss * n for loss, n in found) / max(count, 1)), count


def flower_client(session: TrainingSession, batches: Batches, held: Iterable[Feeds] = ()) -> Any:
    """A `NumPyClient`, Flower's earlier API, whose parameters are the session's trained weights in the order of
    `parameters()`. batches, held: as of `Client`"""
    from flwr.client import NumPyClient

    class Adapter(NumPyClient):  # type: ignore[misc]
        def get_parameters(self, config: Mapping[str, Any]) -> list[np.ndarray]:
            weights = session.weights()
            return [weights[p.name] for p in session.parameters()]

        def fit(self, parameters: list[np.ndarray], config: Mapping[str, Any]) -> tuple[list[np.ndarray], int, Any]:
            load_parameters(session, parameters)
            loss, count = fit(session, batches(config))
            return self.get_parameters(config), count, {"loss": loss} if count else {}

        def evaluate(self, parameters: list[np.ndarray], config: Mapping[str, Any]) -> tuple[float, int, Any]:
            load_parameters(session, parameters)
            return *loss_of(session, held), {}

    return Adapter()


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
