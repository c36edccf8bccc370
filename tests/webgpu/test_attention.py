"""Attention as one kernel, and as parts that another kernel joins, against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kit.attention_cases import CASES, STEPS, Case
from pyruntime import InferenceSession
from pyruntime.providers.webgpu.schedules import attention

pytest.importorskip("wgpu")


def steps(session: InferenceSession, feeds: Any) -> set[str]:
    """The nodes of attention that have kernels besides the last one."""
    return {timing.node.split('"')[1] for timing in session.profile(feeds)} & STEPS - {"scale"}


@pytest.mark.parametrize("half", [False, True], ids=["float32, all keys in a workgroup", "float16, parts of the keys"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sizes(case: Case, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = attention.sizes
    monkeypatch.setattr(attention, "pays", lambda chain, adapter: True)
    monkeypatch.setattr(attention, "sizes", lambda c, a: sizes(c, replace(a, software=not half)))
    session = InferenceSession(case.model(half), providers=["webgpu"])
    for n, feeds in enumerate(case.feeds(half)):
        (got,) = session.run(None, feeds)
        case.check(feeds, got)
        assert n or not steps(session, feeds)


@pytest.mark.parametrize(("case", "joined"), [(CASES[0], True), (CASES[-1], False)], ids=["decoder", "encoder"])
def test_software_adapters_keep_register_tiles_for_many_rows(case: Case, joined: bool) -> None:
    """An encoder has as many rows as keys; a decoder's keys have a past."""
    session = InferenceSession(case.model(False), providers=["webgpu"])
    assert bool(steps(session, next(case.feeds(False)))) is not joined


def test_no_room_in_workgroup_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = attention.sizes
    monkeypatch.setattr(attention, "sizes", lambda c, a: sizes(c, replace(a, shared_bytes=2048)))
    session = InferenceSession(CASES[0].model(False), providers=["webgpu"])
    feeds = next(CASES[0].feeds(False))
    assert steps(session, feeds)
    CASES[0].check(feeds, session.run(None, feeds)[0])
