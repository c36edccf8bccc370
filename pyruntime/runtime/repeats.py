"""Steps of a loop inside WebAssembly, many by one call of the executor.

The places of a loop's values repeat after a few steps, a cycle (`Planner.advance_interned`). Once it is planned, all
addresses of further steps are known, and a function of the body (providers/wasm/step_loop.py) runs a batch of them. It
ends with the batch, with the loop's condition, or with a fault. A buffer of the step has what it reads and writes:

    i64 number of the next step, 8 bytes for what the body does not use
    i32 addresses of the next step's phase and of the end of the phases, i32 steps of the batch, i32 0
    for each stack: i32 address of the next row, i32 bytes of a row
    for each phase of the cycle: i32 addresses of step number, condition, argument blocks, next condition, rows to stack
    rows of the batch, by stack
"""

from __future__ import annotations

from pyruntime.codegen.linear_memory import LOOP_ADDRESSES, LOOP_BYTES, LOOP_HEAD
from pyruntime.program.types import Block, LoopStep
from pyruntime.runtime.planner import Planner
from pyruntime.runtime.portions import next_portion
from pyruntime.runtime.states import State, Transition

PHASES = 16  # of a cycle, at most
LATEST = 32  # a loop without a cycle after so many steps has none
LEAST = 4  # steps that are worth a batch
MOST = 1 << 20  # steps of a batch
SHORT = 5.0  # milliseconds of a step: longer ones can be stopped inside, a batch cannot
WORD = 1 << 32

Phase = tuple[State, Transition]  # a step of a cycle: the state before it, and its calls


def repeats(
    plan: Planner, step: LoopStep, key: str, state: State, address: int, longest: float, shares: bool
) -> Repeats | None:  # fmt: skip
    """How a loop goes on from a state inside WebAssembly; None if its cycle is not planned, or if it is not worth it.

    key: of the step; address: of its buffer; longest: duration of a step that a batch may have; shares: whether steps
    that are worth several threads get them"""
    body = plan.header["blocks"][step["body"]]
    phases = _cycle(plan, step, key, state)
    is_long = any(call.layout.duration > longest or (shares and call.is_parallel) for _, call in phases)
    if is_long or len(phases) == 0:
        return None
    stacked = [v["buffer"] for v in body["outputs"][1 + len(step["carried"]) :]]
    found = Repeats(plan, body, phases, stacked, address)
    return None if found.most < LEAST else found


def _cycle(plan: Planner, step: LoopStep, key: str, state: State) -> list[Phase]:
    """The steps from a state until it comes again; none if they are not planned."""
    found: list[Phase] = []
    at = state
    while len(found) < PHASES:
        unused = at.next.get(f"{key}:unused")
        start = at if unused is None else unused.state
        call = start.next.get(f"{step['body']}.0")
        if call is None or call.generation != plan.tables.generation:
            return []
        after = call.state.next.get(f"{key}:end")
        if after is None:
            return []
        found.append((at, call))
        at = after.state
        if at is state:
            return found
    return []


class Repeats:
    """The batches of steps of one loop in a run.

    stacked: buffers of what a step stacks; address: of the loop's buffer
    most: steps of a batch; rows: for each stack, the address of the batch's first row and the bytes of a row; words:
    addresses of the phases, which belong at `first`; state: before the next step"""

    def __init__(self, plan: Planner, body: Block, phases: list[Phase], stacked: list[int], address: int) -> None:
        self.phases = phases
        self.address = address
        self.first = address + LOOP_HEAD + 8 * len(stacked)
        self.state = phases[0][0]
        self.rows: list[tuple[int, int]] = []
        self.words: list[int] = []
        self._next = 0  # phase
        self._width = LOOP_ADDRESSES + len(stacked)  # words of a phase
        at = self.first + 4 * self._width * len(phases)
        sizes = [plan.size(self.state.env, b) for b in stacked]
        self.most = min((address + LOOP_BYTES - at) // max(sum(sizes), 1), MOST)
        for size in sizes:
            self.rows.append((at, size))
            at += self.most * size
        number, condition = [-1 if v["buffer"] in body["unused"] else v["buffer"] for v in body["inputs"][:2]]
        made = [body["outputs"][0]["buffer"], *stacked]

        def place(state: State, buffer: int) -> int:
            return address + 8 if buffer < 0 else plan.span(state, buffer).address

        for before, call in phases:
            self.words.extend([place(before, number), place(before, condition), call.table])
            self.words.extend([place(call.state, b) for b in made])

    def begin(self, number: int, left: int) -> list[int]:
        """The words at `address` for a batch. number: of its first step; left: steps of the loop"""
        steps = min(left, self.most, self.phases[0][1].layout.batch)
        phases = [self.first + 4 * self._width * n for n in [self._next, len(self.phases)]]
        words = [number % WORD, number // WORD, 0, 0, *phases, steps, 0]
        for address, size in self.rows:
            words.extend([address, size])
        return words

    def took(self, steps: int, milliseconds: float) -> int:
        """A batch has run so many steps. Returns the address of the condition after it."""
        self.phases[0][1].layout.batch = next_portion(steps, milliseconds)
        last = (self._next + steps - 1) % len(self.phases)
        self._next = (last + 1) % len(self.phases)
        self.state = self.phases[self._next][0]
        return self.words[self._width * last + 3]
