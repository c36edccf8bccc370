"""Threads or none (web/threads/thread_trial.js), on machines made up: milliseconds of a run, alone and shared."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from kit.chromium import ROOT

SCRIPT = """
  const { Choice } = await import('./web/threads/thread_trial.js');
  const [alone, shared, runs, slow] = JSON.parse(process.argv[1]);
  const choice = new Choice();
  choice.began(alone);
  const ways = [];
  for (let n = 0; n < runs; n++) {
    ways.push(Number(choice.shared));
    const time = choice.shared ? shared[Math.floor(n * shared.length / runs)] : alone;
    choice.took(slow.includes(n) ? 12 : time);
  }
  console.log(JSON.stringify({ ways, long: choice.long }));
"""


def play(alone: float, shared: list[float], runs: int, slow: list[int] | None = None) -> dict[str, Any]:
    """shared: of equal spans of the runs; slow: runs that take 12 ms."""
    given = json.dumps([alone, shared, runs, slow or []])
    command = ["node", "--input-type=module", "-e", SCRIPT, given]
    result = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(result)
    return found


@pytest.mark.parametrize(
    ("alone", "shared", "share"),
    [(1.0, 0.6, 0.8), (15.0, 8.0, 0.8), (800.0, 400.0, 0.7), (1.0, 0.95, 0.2), (1.0, 1.8, 0.2), (1.0, 22.0, 0.1)],
)
def test_most_runs_go_the_faster_way(alone: float, shared: float, share: float) -> None:
    """A gain of less than a tenth does not pay."""
    ways = play(alone, [shared], 6000 if alone < 100 else 60)["ways"]
    found = sum(ways) / len(ways)
    assert found >= share if share > 0.5 else found <= share


def test_a_machine_that_changes() -> None:
    ways = play(1.0, [0.6, 1.8, 0.6], 60_000)["ways"]
    third = len(ways) // 3
    shares = [sum(ways[n * third : (n + 1) * third]) / third for n in range(3)]
    assert shares[0] > 0.8
    assert shares[1] < 0.3
    assert shares[2] > 0.5


def test_a_run_that_loses_its_core_changes_nothing() -> None:
    calm = play(1.0, [0.6], 900)["ways"]
    assert play(1.0, [0.6], 900, slow=[500, 600, 700])["ways"][:800] == calm[:800]


@pytest.mark.parametrize(("alone", "long"), [(1.0, False), (15.0, True)])
def test_long(alone: float, long: bool) -> None:
    assert play(alone, [0.6 * alone], 400)["long"] is long
