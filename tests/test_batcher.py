"""`Batcher`: requests share runs, each gets its own results, and one at fault fails alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime import Batcher, InferenceSession, InvalidInput, RunOptions, SessionFailed, Terminated
from pyruntime.errors import ExecutionError
from pyruntime.runtime.batching import BatchLayout, Declared, Gatherer

HEAD = '<ir_version: 9, opset_import: ["" : 17]> g '
SCALE = "(float[N, S] x, float k) => (float[N, S] y) { y = Mul (x, k) }"
LOOK_UP = "(int64[N] i) => (float[N] y) <float[3] t = {10, 20, 30}> { y = Gather (t, i) }"


def opened(text: str) -> InferenceSession:
    return InferenceSession(onnx.parser.parse_model(HEAD + text).SerializeToString())


def request(n: int, length: int = 3, k: float = 2.0) -> dict[str, Any]:
    return {"x": np.full((1, length), n, np.float32), "k": np.float32(k)}


def test_requests_of_equal_dims_share_runs() -> None:
    session = opened(SCALE)
    with Batcher(session, size=4, wait=60_000) as batcher:
        feeds = [request(n, 2 + n % 2, 1 + n % 3) for n in range(24)]  # 2 lengths x 3 values of k: 6 groups of 4
        futures = [batcher.submit(None, x) for x in feeds]
        found = [f.result(30)[0] for f in futures]
    for x, y in zip(feeds, found, strict=True):
        np.testing.assert_array_equal(y, x["x"] * x["k"])
    assert session.metrics()["runs"] == 6


def test_padded_requests_get_their_own_lengths() -> None:
    session = opened(SCALE)
    with Batcher(session, size=8, wait=60_000, pad={"x": 7}) as batcher:
        futures = [batcher.submit(["y"], request(n, n + 1)) for n in range(8)]
        assert [f.result(30)[0].tolist() for f in futures] == [[[2.0 * n] * (n + 1)] for n in range(8)]
    assert session.metrics()["runs"] == 1


def test_a_request_at_fault_fails_alone() -> None:
    session = opened(LOOK_UP)
    with Batcher(session, size=8, wait=60_000) as batcher:
        futures = [batcher.submit(None, {"i": np.array([n], np.int64)}) for n in (0, 1, 2, 9, 0, 1, 2, 0)]
        with pytest.raises(ExecutionError):
            futures.pop(3).result(30)
        assert [f.result(30)[0][0] for f in futures] == [10, 20, 30, 10, 20, 30, 10]
        for wrong in ({"i": np.zeros((1,), np.float32)}, {}, {"i": np.zeros((0,), np.int64)}):
            with pytest.raises(InvalidInput):
                batcher.submit(None, wrong)
    assert session.metrics()["runs"] < 8 + 1


def test_threads_coroutines_and_the_wait() -> None:
    session = opened(SCALE)
    batcher = Batcher(session, size=64, wait=30)
    found: dict[int, float] = {}

    def ask(n: int) -> None:
        found[n] = batcher.run(None, request(n))[0][0, 0]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: 2 * n for n in range(10)} and session.metrics()["runs"] < 10

    async def several() -> list[Any]:
        return await asyncio.gather(*[asyncio.wrap_future(batcher.submit(None, request(n))) for n in range(3)])

    assert [y[0, 0] for (y,) in asyncio.run(several())] == [0, 2, 4]
    batcher.close()


def test_stop_cancel_and_close() -> None:
    session = opened(SCALE)
    batcher = Batcher(session, size=64, wait=60_000)
    options = RunOptions()
    threading.Timer(0.1, lambda: setattr(options, "terminate", True)).start()
    with pytest.raises(Terminated):
        batcher.run(None, request(1), options)
    dropped, kept = batcher.submit(None, request(2)), batcher.submit(None, request(3))
    assert dropped.cancel()
    batcher.close()  # runs what waits
    assert kept.result(0)[0][0, 0] == 6 and session.metrics()["runs"] == 1
    with pytest.raises(SessionFailed, match="closed"):
        batcher.submit(None, request(1))


def test_a_callback_closes_the_batcher() -> None:
    batcher = Batcher(opened(SCALE), size=2, wait=60_000)
    closed: list[None] = []
    first, _, waits = [batcher.submit(None, request(1)) for _ in range(3)]
    first.add_done_callback(lambda _: closed.append(batcher.close()))
    assert waits.result(30)[0][0, 0] == 2 and closed == [None]


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("(float[2, S] x) => (float[2, S] y) { y = Neg (x) }", {}, "no input has a free first dim"),
        ("(float[N, S] x) => (float[N, S] y) { y = Neg (x) }", {"dim": "B"}, 'no input has the first dim "B"'),
        ("(float[N] x) => (float[1] y) { y = ReduceSum (x) }", {}, 'output "y" has no batch dim'),
        ("(seq(float[N]) x) => (seq(float[N]) y) { y = Identity (x) }", {}, 'input "x" is no tensor'),
        (SCALE, {"pad": {"k": 0}}, '"k" is no input with a batch dim'),
        (SCALE, {"size": 0}, "size 0"),
    ],
)
def test_what_cannot_be_batched_is_refused(text: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Batcher(opened(text), **options)


def test_an_output_whose_rows_are_no_items_is_refused() -> None:
    session = opened("(float[N, S] x) => (float[M] y) <int64[1] s = {-1}> { y = Reshape (x, s) }")
    with Batcher(session, wait=0) as batcher, pytest.raises(InvalidInput, match='output "y" has no row for each of 1'):
        batcher.run(None, {"x": np.zeros((1, 3), np.float32)})


def test_groups_are_taken_when_full_or_due() -> None:
    gatherer = Gatherer(4, 10)
    take: Callable[[float], list[int]] = gatherer.take
    assert (gatherer.due(), take(float("inf"))) == (float("inf"), [])
    for number, (key, rows, now) in enumerate([("a", 1, 0), ("b", 1, 1), ("a", 2, 2), ("b", 3, 3), ("a", 3, 4)]):
        gatherer.add(key, number, rows, now)
    assert gatherer.due() == float("-inf") and take(5) == [0, 2] and take(5) == [1, 3]
    assert gatherer.due() == 14 and take(13) == [] and gatherer.remove(4) and not gatherer.remove(4)
    gatherer.add("c", 5, 9, 20)  # more rows than fit run alone
    gatherer.add("c", 6, 1, 21)
    assert take(22) == [5] and take(30) == [] and take(31) == [6]


def test_the_oldest_request_runs_with_those_of_similar_lengths() -> None:
    gatherer = Gatherer(2, 10)
    for number, length in enumerate([9, 2, 8, 3, 20]):
        gatherer.add("a", number, 1, 0, length)
    assert [gatherer.take(0), gatherer.take(0), gatherer.take(0), gatherer.take(10)] == [[0, 2], [1, 3], [], [4]]


def test_unnamed_first_dims_count_and_named_ones_decide() -> None:
    inputs = [Declared("a", [None, 2]), Declared("b", ["rows"]), Declared("c", ["other", 1])]
    layout = BatchLayout(inputs, [Declared("y", [None])], "", [])
    assert (layout.dim, layout.batched, layout.refused) == ("rows", {"a", "b"}, "")
    assert layout.rows({"a": [2, 2], "b": [3], "c": [9, 1]}) == -1
