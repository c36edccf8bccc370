"""What a program sets without effect gives one warning; what is honoured gives none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime import InferenceSession, NotSupported, RunOptions, SessionOptions
from pyruntime.api import logs
from pyruntime.api.enums import ExecutionMode, ExecutionOrder
from pyruntime.options import SESSION_ENTRIES, declared
from tests.test_session import chain

MODEL = chain(1)
FEEDS = {"x": np.ones((2, 4), np.float32)}
# A value of each option without effect that gives a warning, and one that does not.
VALUES: dict[str, tuple[Any, Any]] = {
    "execution_mode": (ExecutionMode.ORT_PARALLEL, ExecutionMode.ORT_SEQUENTIAL),
    "execution_order": (ExecutionOrder.PRIORITY_BASED, ExecutionOrder.DEFAULT),
    "inter_op_num_threads": (2, 1),
    "log_verbosity_level": (1, 0),
    **dict.fromkeys(
        ("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "use_per_session_threads"), (False, True)
    ),
    "use_deterministic_compute": (None, True),  # it is as the program wants it
}


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_printed", set())


def test_every_option_without_effect_is_in_the_table() -> None:
    assert {name for name, option in declared(SessionOptions).items() if option.no_effect} == VALUES.keys()


@pytest.mark.parametrize("name", VALUES)
def test_a_session_option(name: str, caplog: pytest.LogCaptureFixture) -> None:
    effective, silent = VALUES[name]
    for value, count in ((silent, 0), (effective, 1), (effective, 1)):
        if value is not None:
            options = SessionOptions()
            setattr(options, name, value)
            InferenceSession(MODEL, options)
            assert [f'"{name}" has no effect' in text for text in caplog.messages] == [True] * count


def test_entries(caplog: pytest.LogCaptureFixture) -> None:
    options, run = SessionOptions(), RunOptions()
    for key, entry in SESSION_ENTRIES.items():
        options.add_session_config_entry(key, "0" if "folder" not in key else "")
        if entry.refused:
            with pytest.raises(NotSupported, match=key):
                options.add_session_config_entry(key, "1")
    run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    run.only_execute_path_to_fetches = True
    session = InferenceSession(MODEL, options)
    session.run(None, FEEDS, run)
    assert not caplog.messages
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    run.add_run_config_entry("kernel.wish", "1")
    for _ in range(2):
        InferenceSession(MODEL, options).run(None, FEEDS, run)
    assert caplog.messages == [
        'there is no session entry "session.intra_op.allow_spinning", it has no effect',
        'there is no run entry "kernel.wish", it has no effect',
    ]


def test_a_run_that_gives_memory_back() -> None:
    run = RunOptions()
    session = InferenceSession(MODEL)
    session.run(None, {"x": np.ones((1 << 16, 4), np.float32)})
    before = session.memory().arena
    session.run(None, FEEDS, run)
    assert session.memory().arena == before
    run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session.run(None, FEEDS, run)
    assert session.memory().arena < before
