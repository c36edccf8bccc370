"""Attention as one kernel, and as parts that another kernel joins, against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kit.attention_cases import CASES, STEPS, Case
from pyruntime import InferenceSession, SessionOptions
from pyruntime.codegen.choices import ATTENTION, KNOBS
from pyruntime.providers.webgpu.schedules import attention

pytest.importorskip("wgpu")

FORMS = KNOBS[ATTENTION].values
assert FORMS == tuple(attention.FORMS)
ALWAYS = [form for form in FORMS if attention.FORMS[form].always]  # one kernel on every adapter


def steps(session: InferenceSession, feeds: Any) -> set[str]:
    """The nodes of attention that have kernels besides the last one."""
    return {timing.node.split('"')[1] for timing in session.profile(feeds)} & STEPS - {"scale"}


def opened(case: Case, half: bool = False, form: str | None = None) -> InferenceSession:
    choices = None if form is None else {ATTENTION: {"": form}}
    return InferenceSession(case.model(half), SessionOptions(choices=choices), providers=["webgpu"])


@pytest.mark.parametrize("half", [False, True], ids=["float32, all keys in a workgroup", "float16, parts of the keys"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sizes(case: Case, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = attention.sizes
    monkeypatch.setattr(attention, "sizes", lambda c, a: sizes(c, replace(a, software=not half)))
    session = opened(case, half, form=ALWAYS[half])
    for n, feeds in enumerate(case.feeds(half)):
        (got,) = session.run(None, feeds)
        case.check(feeds, got)
        assert n or not steps(session, feeds)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", [CASES[3], CASES[-1]], ids=str)
def test_every_form(case: Case, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = attention.sizes
    monkeypatch.setattr(attention, "sizes", lambda c, a: sizes(c, replace(a, software=False)))
    session = opened(case, form=form)
    for feeds in case.feeds(False):
        case.check(feeds, session.run(None, feeds)[0])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_software_adapters_compute_tokens_in_one_kernel(case: Case) -> None:
    """Runs of more rows, encoders, whose rows are as many as their keys, and more than four heads that share keys have
    products and a softmax, which are faster there."""
    session = opened(case)
    for past, rows in ((0, 1), (300, 1), (300, 2), (0, 1), (5, 40)):
        feeds = next(case.feeds(False, ((past, rows),)))
        case.check(feeds, session.run(None, feeds)[0])
        assert bool(steps(session, feeds)) is not (rows == 1 and case.past and case.shared <= 4)


def test_no_room_in_workgroup_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = attention.sizes
    monkeypatch.setattr(attention, "sizes", lambda c, a: sizes(c, replace(a, shared_bytes=2048)))
    session = opened(CASES[0])
    feeds = next(CASES[0].feeds(False))
    assert steps(session, feeds)
    CASES[0].check(feeds, session.run(None, feeds)[0])
