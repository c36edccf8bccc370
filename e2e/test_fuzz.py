"""A fixed part of `make fuzz ARGS=--pages`: every case runs in Chromium, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzz import judge
from fuzz.case import FAILURES
from fuzz.draw import Draw
from fuzz.pages import Pages
from fuzz.peers import Peers
from fuzz.targets import make

SEED = 7
CASES = {"operators": 40, "rare": 40, "graphs": 40, "sequences": 20, "models": 20}


@pytest.fixture(scope="module")
def runtimes(built: None) -> Iterator[tuple[Peers, Pages]]:
    peers, pages = Peers(), Pages()
    yield peers, pages
    peers.stop()
    pages.stop()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", CASES)
def test_cases(runtimes: tuple[Peers, Pages], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "IN_A_PAGE", 1.0)
    peers, pages = runtimes
    failed = []
    for index in range(CASES[target]):
        if case := make(target, SEED, index):
            verdict = judge.judge(case, Draw(f"{target}/{index}"), peers, lambda *_: None, [], pages)
            failed += [f"{index}: {verdict.outcome}: {verdict.detail}"] * (verdict.outcome in FAILURES)
    assert not failed, "\n".join(failed)
