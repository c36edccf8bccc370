"""What sessions report before their first step, after it, and after their release."""

from __future__ import annotations

from typing import Any

from kit.training_networks import batch, dense
from kit.training_reports import MEMORY, check_reports
from pyruntime import PyRuntimeError, TrainingSession

CLASSES = {"loss": {"cross_entropy": "y"}}


def test_reports() -> None:
    found: list[Any] = []
    for memory in MEMORY:
        session, rows = TrainingSession(dense(), **CLASSES, **({} if memory is None else {"memory": memory})), []

        def asked(action: Any) -> Any:
            try:
                return action()
            except PyRuntimeError as error:
                return f"{type(error).__name__}: {error}"

        def row(runs: int | None, s: TrainingSession = session, rows: list[Any] = rows) -> None:
            figures = asked(s.memory)
            kind = "weights and peak" if getattr(figures, "peak", 0) else "weights"
            used = asked(lambda: s.explain()["providers"]["used"][0])
            rows.append([used, runs, kind if getattr(figures, "weights", 0) else figures])

        row(session.metrics()["runs"])
        session.step(batch(4))
        row(session.metrics()["runs"])
        session.release()
        row(None)
        found.append(rows)
    check_reports(found)
