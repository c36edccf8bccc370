"""The states of a session: one table in code and documentation, and what native sessions do."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import onnx
import pytest

from kit.docs import ROOT
from pyruntime.errors import InternalError, SessionFailed
from pyruntime.native.sessions.session import Session
from pyruntime.runtime.session_rules import TRANSITIONS
from pyruntime.session.states import SessionState, StateMachine

TABLE = {old: {*new} for old, new in TRANSITIONS.items()}


def test_the_documented_transitions_are_those_of_the_table() -> None:
    text = (ROOT / "docs" / "design" / "sessions.md").read_text()
    found: dict[str, set[str]] = {name: set() for name in TABLE}
    for states, new in re.findall(r"^\| ([a-z, ]+) \| ([a-z]+) \|", text, re.MULTILINE):
        for old in set(states.split(", ")) & found.keys():
            found[old].add(new)
    assert found == TABLE


@pytest.mark.parametrize("old", SessionState)
@pytest.mark.parametrize("new", SessionState)
def test_transitions(old: SessionState, new: SessionState) -> None:
    is_busy = old in (SessionState.RUNNING, SessionState.RECOVERING)
    machine = StateMachine(lambda: is_busy)
    machine._stored = old
    assert machine.state is old
    if new is old or new in TRANSITIONS[old]:
        machine.enter(new)
    else:
        with pytest.raises((InternalError, SessionFailed), match="cannot go from|is released"):
            machine.enter(new)


ONE_PROGRAM = "g (float[n] x, int64[r] s) => (float[n] y) { y = Neg (x) }"
PROGRAM_FOR_VALUES = "g (float[n] x, int64[r] s) => (float[?] y) { y = Reshape (x, s) }"


@pytest.mark.filterwarnings("ignore:output")
@pytest.mark.parametrize("text", [ONE_PROGRAM, PROGRAM_FOR_VALUES])
def test_a_released_session_refuses_work(text: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    session = Session(model.SerializeToString())
    feeds = {"x": np.float32([1]), "s": np.int64([1])}
    assert session.state == "ready" and abs(session.run(None, feeds)[0]).tolist() == [1]
    session.release()
    assert session.state == "released" and not session.executors
    for work in (partial(session.run, None, feeds), partial(session.profile, feeds), session.explain, session.memory):
        with pytest.raises(SessionFailed, match="is released"):
            work()
    session.release()  # a second time does nothing
