"""Steps of a driver of one session and what the session should have counted: natively (tests/test_metrics.py) and in
pages (e2e/test_metrics.py).

steps: "run ROWS"; "refuse": a run with a wrong feed; "stop": a run that its caller stops; "lose": the GPU's device;
"release"; planned: runs that need a plan; states: those of events, then the last one; outcomes: of the runs
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Row(NamedTuple):
    name: str
    steps: list[str]
    counts: dict[str, int]
    planned: int | None
    states: list[str]
    outcomes: str
    on_gpu: bool = False

    def check(self, found: dict[str, Any], heard: list[dict[str, Any]], session: int, state: str) -> None:
        """Compare metrics, events, the session's number and its state with what the driver did."""
        assert {name: found[name] for name in ("runs", "failed", "stopped", "recovered")} == self.counts
        assert self.planned in (None, found["plans"]["made"])
        runs = [event for event in heard if event["type"] == "run"]
        assert [event["outcome"] for event in runs] == self.outcomes.split()
        assert [e["state"] for e in heard if e["type"] == "state"] + [state] == self.states
        assert heard[0]["type"] == "created" and {e["session"] for e in heard} == {session}
        took = max(e["milliseconds"] for e in runs if e["outcome"] == "succeeded")
        assert abs(found["milliseconds"]["max"] - took) < 1
        assert found["waiting"] == 0 and found["compiled"] >= 1
        assert (found["bytes"] > 0) == (state != "released")


def counts(runs: int, failed: int = 0, stopped: int = 0, recovered: int = 0) -> dict[str, int]:
    return {"runs": runs, "failed": failed, "stopped": stopped, "recovered": recovered}


TABLE = [
    Row(
        "runs, with two shapes",
        ["run 1", "run 1", "run 2", "run 1"],
        counts(4),
        2,
        ["ready"],
        "succeeded succeeded succeeded succeeded",
    ),
    Row(
        "feeds are refused, and a run is stopped before it starts",
        ["run 1", "refuse", "stop", "refuse", "run 1"],
        counts(5, failed=2, stopped=1),
        1,
        ["ready"],
        "succeeded failed stopped failed succeeded",
    ),
    Row(
        "the device is lost twice",
        ["run 1", "lose", "run 1", "run 1", "lose", "refuse", "run 2"],
        counts(5, failed=1, recovered=2),
        None,
        ["recovering", "running", "recovering", "running", "ready"],
        "succeeded succeeded succeeded failed succeeded",
        on_gpu=True,
    ),
    Row(
        "after the release nothing runs",
        ["run 1", "release", "run 1"],
        counts(2, failed=1),
        1,
        ["released", "released"],
        "succeeded failed",
    ),
]
