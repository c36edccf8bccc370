"""`python -m fuzz.sequences --minutes 10`: random sequences of calls, in several machines in turn."""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
import traceback
from pathlib import Path

from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

from fuzz.sequences.inference import InferenceMachine
from fuzz.sequences.machine import Machine, of_machine, seem_hardware
from fuzz.sequences.text import TextMachine
from fuzz.sequences.training import TrainingMachine

MACHINES: dict[str, type[Machine]] = {"inference": InferenceMachine, "training": TrainingMachine, "text": TextMachine}
EXAMPLES = 10  # of a machine, before it is the next one's turn


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.sequences", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--machines", default=",".join(MACHINES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=30, help="calls of a sequence, at most")
    parser.add_argument("--keep", action="store_true", help="do not minimise failures")
    options = parser.parse_args()
    faulthandler.enable()
    seem_hardware()
    Machine.log = Path("build/sequences.log")
    end, failures, seed = time.monotonic() + 60 * options.minutes, 0, options.seed
    while time.monotonic() < end:
        for name in options.machines.split(","):
            try:
                run_state_machine_as_test(
                    seeded(seed)(MACHINES[name]), settings=of_machine(EXAMPLES, options.steps, not options.keep)
                )
            except Exception:
                failures += 1
                print(f"── {name}, seed {seed} ──")
                traceback.print_exc()
        seed += 1
        counts = Machine.counts
        print(
            f"sequences: {counts['examples']} sequences, {counts['calls']} calls, {counts['refused']} refused as "
            f"expected: {failures} failures; next seed {seed}",
            flush=True,
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
