"""Random sequences of calls in a page (kit/pages/sequences), and shrunk failures of `python -m fuzz.page_sequences`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from e2e.conftest import Server, new_tab
from kit.page_sequences import Sequences, bundle

WASM, GPU, BOTH = ["wasm"], ["webgpu"], ["webgpu", "wasm"]


@pytest.fixture(scope="module", params=["isolated", "plain"])
def sequences(request: pytest.FixtureRequest, browser: Browser, servers: dict[str, Server]) -> Iterator[Sequences]:
    bundle()
    tab = new_tab(browser, servers[request.param])
    yield Sequences(tab.page, tab.origin)
    tab.page.context.close()
    tab.check()


@pytest.mark.parametrize("seed", [1, 2])
def test_random_sequences(sequences: Sequences, seed: int) -> None:
    found = sequences.search(seed=seed, runs=4, length=60, names=[], path="")
    assert found["failure"] is None, found["failure"]
    assert found["commands"] > 10


def training(accumulates: bool = False, nulls: bool = False, providers: list[str] = WASM) -> list[Any]:
    return ["training create", {"providers": providers, "accumulates": accumulates, "nulls": nulls}]


def step(stop: str = "no", is_awaited: bool = False) -> list[Any]:
    return ["training step", {"at": 0, "rows": 1, "seed": 0, "stop": stop, "isAwaited": is_awaited}]


def text(providers: list[str], on_gpu: bool = False) -> list[Any]:
    return ["text create", {"decoder": "sums", "providers": providers, "hasDraft": False, "onGpu": on_gpu}]


GENERATE = ["text generate", {"at": 0, "prompt": [1], "count": 1, "stop": "no", "isText": False, "isAwaited": True}]
SET_WEIGHTS = ["training setWeights", {"at": 0, "seed": 0, "isAwaited": False}]
APPLY = ["training apply", {"at": 0, "sum": None, "isAwaited": True}]
SAVE, LOAD = (
    ["training save", {"at": 0, "isAwaited": True}],
    ["training load", {"at": 0, "from": 0, "isAwaited": False}],
)
ACCUMULATE = ["training accumulate", {"at": 0, "rows": 1, "seed": 0, "isAwaited": True}]
OWN_FEED = ["training evaluate", {"at": 0, "rows": 1, "seed": 0, "how": "own name", "isAwaited": True}]
ADAPTED = {
    "net": "gemm", "providers": WASM, "onGpu": False, "fallback": True, "threads": 1, "isCached": False, "nulls": False,
    "stop": "no", "isAwaited": True,
}  # fmt: skip
OWN_FEED_OF_ADAPTERS = ["session wrong", {"net": "gemm", "at": 0, "how": "a name of the engine", "isAwaited": True}]
CACHE = ["session create", {**ADAPTED, "net": "sums", "providers": GPU, "onGpu": True}]
FED_BACK = ["session feedBack", {"at": 0, "tensor": -1, "seed": 0, "batch": 1, "stop": "no", "isAwaited": True}]
READ = ["session read", {"at": 0, "isAwaited": False}]
CASES = {
    "options of a generator are null": [text(WASM), GENERATE],
    "options of training are null": [training(nulls=True), step()],
    "all outputs of a decoder stay on the GPU": [text(BOTH, True), GENERATE],
    "feeds change while a step waits": [training(), step(), step()],
    "feeds change while a step waits for new weights": [training(), SET_WEIGHTS, step()],
    "a step is stopped too late": [training(), step("now"), step()],
    "a checkpoint has no losses of gradients that wait": [
        training(True),
        ACCUMULATE,
        SAVE,
        APPLY,
        ACCUMULATE,
        LOAD,
        APPLY,
    ],
    "feeds have names of the engine": [training(), OWN_FEED, ["session create", ADAPTED], OWN_FEED_OF_ADAPTERS],
    "a step is stopped between its gradients and the update": [training(True), step("later", True), APPLY, step()],
    "a tensor is read twice": [CACHE, FED_BACK, READ, READ],
    "the GPU's memory ends when the first run needs more": [
        ["session create", {**ADAPTED, "providers": GPU, "isAwaited": False}],
        ["page limit", {}],
        ["gpu inject", {"fault": "full", "skipped": 1, "times": 1}],
        training(providers=GPU),
        ["training evaluate", {"at": 0, "rows": 1, "seed": 0, "how": "loss", "isAwaited": False}],
        ["training save", {"at": 0, "isAwaited": False}],
    ],
}
for skipped in range(4):
    full = ["gpu inject", {"fault": "full", "skipped": skipped, "times": 1}]
    more = ["training step", {"at": 0, "rows": 3, "seed": 0, "stop": "no", "isAwaited": True}]
    one = ["training evaluate", {"at": 0, "rows": 1, "seed": 0, "how": "loss", "isAwaited": False}]
    steps = [step(is_awaited=True), full, more, SAVE, step()]
    CASES |= {
        f"the GPU's memory ends during a run, number {skipped}": [full, training(providers=GPU), more, one],
        f"the GPU's memory ends during a later step, number {skipped}": [training(providers=GPU), *steps],
    }


@pytest.mark.parametrize("commands", CASES.values(), ids=CASES.keys())
def test_shrunk_failures(sequences: Sequences, commands: list[Any]) -> None:
    sequences.replay(commands)
