"""Texts that one generator writes at the same time: each equals its own alone, and they share runs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import numpy as np
import pytest

from kit import zoo
from kit.families import ENCODERS, names, source
from kit.several_chats import LONG, PROMPT, SHORT, TABLE, Letters
from pyruntime import InvalidInput, TextGenerator
from pyruntime.api.decoder import Decoder
from pyruntime.api.text_file import read
from pyruntime.errors import ExecutionError
from pyruntime.runtime.text_batch import TextBatch
from pyruntime.runtime.writing import SPARE, Request, Sampling, Waiting, shared_groups
from tests.test_families import opened


@pytest.fixture(scope="module")
def generator() -> Iterator[Callable[..., TextGenerator]]:
    made: dict[str, TextGenerator] = {}

    def opened(provider: str = "wasm") -> TextGenerator:
        if provider not in made:
            model = zoo.materialize("llama_mini")
            made[provider] = TextGenerator(model, Letters(), providers=[provider], stop_tokens=[])
        return made[provider]

    yield opened
    for writer in made.values():
        writer.release()


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each run that several texts share."""
    rows: list[int] = []
    run = TextBatch.run_shared

    async def counted(batch: TextBatch, *args: Any) -> list[float]:
        found = await run(batch, *args)
        rows.append(len(found))
        return found

    monkeypatch.setattr(TextBatch, "run_shared", counted)
    return rows


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
@pytest.mark.parametrize("case", TABLE)
def test_streams_that_take_turns(
    case: str, provider: str, generator: Callable[..., TextGenerator], shared: list[int]
) -> None:
    writer = generator(provider)
    plan = TABLE[case]
    expected = []
    for prompt, settings, _, _ in plan:
        writer.reset()
        expected.append(writer.generate(prompt, max_tokens=10, **settings).text)
    assert not shared
    streams: dict[int, Iterator[str]] = {}
    found = [""] * len(plan)
    for turn in range(20):
        for n, (prompt, settings, begin, _) in enumerate(plan):
            if turn == begin:
                streams[n] = writer.stream(prompt, max_tokens=10, **settings)
        for n, stream in list(streams.items()):
            found[n] += next(stream, "")
            if len(found[n]) == plan[n][3]:
                streams.pop(n).close()  # type: ignore[attr-defined]
    assert found == [text[: plan[n][3] or None] for n, text in enumerate(expected)]
    assert max(shared, default=1) == (1 if case == "one" else 2 if "two ways" in case else max(shared, default=0))
    assert len(shared) >= min(len(plan) - 1, 1) * 3
    assert writer.generate(plan[0][0], max_tokens=10, **plan[0][1]).text == expected[0]


@pytest.mark.parametrize("count", [2, 5])
def test_threads(count: int, generator: Callable[..., TextGenerator], shared: list[int]) -> None:
    writer = generator()
    prompts = [[*PROMPT[:n], n + 1] for n in range(count)]
    expected = [
        writer.generate(prompt, max_tokens=30, temperature=1, seed=n).tokens for n, prompt in enumerate(prompts)
    ]
    found: dict[int, list[int]] = {}

    def write(n: int) -> None:
        found[n] = writer.generate(prompts[n], max_tokens=30, temperature=1, seed=n).tokens

    threads = [Thread(target=write, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(count)] == expected and max(shared) > 1


def test_tasks_of_asyncio(generator: Callable[..., TextGenerator], shared: list[int]) -> None:
    writer = generator()
    expected = [writer.generate([n, 3], max_tokens=20).tokens for n in range(3)]

    async def gathered() -> list[Any]:
        return await asyncio.gather(*(asyncio.to_thread(writer.generate, [n, 3], max_tokens=20) for n in range(3)))

    assert [out.tokens for out in asyncio.run(gathered())] == expected and max(shared) > 1


@pytest.mark.parametrize("name", names())
def test_families(name: str) -> None:
    """States, windows, masks and positions of published families: a short text joins a long one, and a list."""
    inputs = {"inputs": source(name)} if name in ENCODERS else {}
    writer = opened(name)
    prompts = [LONG, SHORT, PROMPT]
    expected = [writer.generate(prompt, max_tokens=8, **inputs).tokens for prompt in prompts]
    assert [out.tokens for out in writer.generate(prompts, max_tokens=8, **inputs)] == expected
    writer.release()


def test_a_list_is_written_by_shared_runs(generator: Callable[..., TextGenerator], shared: list[int]) -> None:
    writer = generator()
    alone = [writer.generate(PROMPT, max_tokens=6, seed=seed, temperature=1).tokens for seed in (7, 8)]
    found = writer.generate([PROMPT] * 2, max_tokens=6, seed=7, temperature=1)
    assert [out.tokens for out in found] == alone and shared == [2] * 5
    shared.clear()
    found = writer.generate([SHORT, LONG, PROMPT], max_tokens=6)
    assert shared == [3] * 5 and [out.reused for out in found] == [0] * 3


def test_an_error_concerns_one_text(shared: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """One text passes the last position of the model in a run that it shares; another prompt has no such token."""
    model = zoo.materialize("llama_mini")
    tokenizer = Letters()
    writer = TextGenerator(model, tokenizer, stop_tokens=[])
    good = writer.generate(PROMPT, max_tokens=12).text
    first = writer.stream(PROMPT, max_tokens=12)
    found = next(first)
    with pytest.raises(ExecutionError, match="does the tokenizer belong to this model"):
        writer.generate([5, 10**6], max_tokens=3)
    second = writer.stream(SHORT, max_tokens=12)
    next(second)
    found += next(first)
    decode = tokenizer.decode
    failing = second.gi_frame.f_locals["chat"]  # type: ignore[attr-defined]

    def refused(tokens: list[int]) -> str:
        raise InvalidInput("no text")

    failing.text._stream.decode = refused
    with pytest.raises(InvalidInput, match="no text"):
        list(second)
    assert found + "".join(first) == good and shared
    with monkeypatch.context() as patched:  # in the middle of a text that nobody reads before its end
        calls = iter(range(20))
        patched.setattr(tokenizer, "decode", lambda tokens: decode(tokens) if next(calls) < 9 else refused(tokens))
        with pytest.raises(InvalidInput, match="no text"):
            writer.generate(PROMPT, max_tokens=20)


def test_a_shared_run_that_fails(generator: Callable[..., TextGenerator], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text reads its tokens again, alone."""
    writer = generator()
    expected = [writer.generate(prompt, max_tokens=8).tokens for prompt in (PROMPT, SHORT)]
    failures = iter([True, False, True])
    run = TextBatch.run_shared

    async def failing(batch: TextBatch, *args: Any) -> list[float]:
        if next(failures, False):
            raise ExecutionError("a fault")
        return await run(batch, *args)

    monkeypatch.setattr(TextBatch, "run_shared", failing)
    assert [out.tokens for out in writer.generate([PROMPT, SHORT], max_tokens=8)] == expected
    assert not next(failures, False)


def test_a_paused_stream() -> None:
    """It is written a little ahead; then its row is freed, and it goes on later. Its text is saved as a whole."""
    writer = TextGenerator(zoo.materialize("llama_mini"), Letters(), stop_tokens=[])
    whole = writer.generate(PROMPT, max_tokens=30).text
    other = writer.generate(SHORT, max_tokens=30).tokens
    paused = writer.stream(PROMPT, max_tokens=30)
    found = next(paused)
    assert writer.generate(SHORT, max_tokens=30).tokens == other
    chat = paused.gi_frame.f_locals["chat"]  # type: ignore[attr-defined]
    assert 7 <= len(chat.text.tokens) <= 9 and writer.last.tokens == other
    writer.reset()
    assert found + "".join(paused) == whole
    stream = writer.stream(PROMPT, max_tokens=30)
    next(stream)
    aside = writer.stream(SHORT, max_tokens=2)
    next(aside)
    file = writer.save()
    assert "".join(aside) == "".join(chr(0x4E00 + token) for token in other[1:2])
    again = TextGenerator(zoo.materialize("llama_mini"), Letters(), stop_tokens=[])
    again.restore(file)
    begun = again.last.tokens
    assert "".join(again.resume(20)) and again.last.tokens == other[: len(begun) + 20]
    writer.release()


def test_a_text_in_the_middle_of_a_run(
    generator: Callable[..., TextGenerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener of events cannot begin one, and is told so instead of waiting for itself."""
    writer = generator()
    refused: list[str] = []
    sample = Decoder.sample

    async def interrupted(decoder: Decoder, *args: Any) -> list[float]:
        for call in (lambda: writer.generate([1], max_tokens=1), writer.reset):
            with pytest.raises(InvalidInput) as error:
                call()
            refused.append(str(error.value))
        return await sample(decoder, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Decoder, "sample", interrupted)
        writer.generate([1], max_tokens=1)
    assert len(refused) == 2 and all("in the middle of a run" in text for text in refused)
    assert writer.generate([1], max_tokens=1).tokens


def test_inputs_of_their_own() -> None:
    """A text that waits keeps its encoder's states and mask."""
    writer, own = opened("t5"), source("t5")["input_ids"]
    ids, masks = np.concatenate([own, own]), np.ones((2, own.shape[1]), np.int64)
    masks[1, 1:] = 0
    texts = [{"input_ids": ids[n : n + 1], "attention_mask": masks[n : n + 1]} for n in range(2)]
    expected = [writer.generate(PROMPT, max_tokens=10, inputs=inputs).tokens for inputs in texts]
    inputs = {"input_ids": ids, "attention_mask": masks}
    found = writer.generate([PROMPT, PROMPT], max_tokens=10, inputs=inputs)
    assert expected[0] != expected[1] and [out.tokens for out in found] == expected
    writer.release()


def test_a_saved_text_has_its_own_tokens_alone(generator: Callable[..., TextGenerator]) -> None:
    """also if another one ended after it, or it has not begun."""
    writer = generator()
    older = writer.stream(PROMPT, max_tokens=6)
    next(older)
    newest = writer.generate(SHORT, max_tokens=3)
    assert list(older)
    file, _ = read(writer.save())
    so_far = [*SHORT, *newest.tokens]
    assert file.prompt == SHORT and file.decoders[0].cached == so_far[: len(file.decoders[0].cached)]
    writer.generate(PROMPT, max_tokens=4)
    refused = writer.stream(SHORT, max_tokens=4, inputs={"none": np.zeros(1)})
    with pytest.raises(InvalidInput, match="the model has no input none"):
        next(refused)
    file, _ = read(writer.save())
    assert file.prompt == SHORT and not file.decoders[0].cached


def test_the_end_of_a_text_is_there_when_it_ends(generator: Callable[..., TextGenerator]) -> None:
    """A reader in another thread stops where a text has no further run."""
    stream = generator().stream(SHORT, max_tokens=3)
    next(stream)
    chat = stream.gi_frame.f_locals["chat"]  # type: ignore[attr-defined]
    end, seen = chat.text.end, []
    chat.text.end = lambda: (seen.append(chat.request), end())[1]
    assert list(stream) and len(seen) == 1 and seen[0] is not None


def test_a_child_that_is_forked_in_the_middle_of_a_run(
    generator: Callable[..., TextGenerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """writes texts; those that were being written end with an error."""
    writer = generator()
    expected = writer.generate(SHORT, max_tokens=3).tokens
    stream = writer.stream(PROMPT, max_tokens=60)
    next(stream)
    codes: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            code = 1
            try:
                monkeypatch.undo()
                with pytest.raises(ExecutionError, match="forked in the middle of a run"):
                    list(stream)
                code = 0 if writer.generate(SHORT, max_tokens=3).tokens == expected else 2
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    sample = Decoder.sample

    async def forking(decoder: Decoder, *args: Any) -> list[float]:
        if not codes:
            thread = Thread(target=fork)
            thread.start()
            thread.join()
        return await sample(decoder, *args)

    monkeypatch.setattr(Decoder, "sample", forking)
    whole = writer.generate(LONG, max_tokens=6).tokens
    assert codes == [0] and list(stream)
    assert writer.generate(LONG, max_tokens=6).tokens == whole


def test_rows_that_depend_on_each_other_run_alone(shared: list[int]) -> None:
    """The scale of DynamicQuantizeLinear is that of all rows."""
    writer = TextGenerator(zoo.materialize("llama_mini.dyn"))
    prompts = [PROMPT, SHORT]
    expected = [writer.generate(prompt, max_tokens=8).tokens for prompt in prompts]
    writer.reset()
    assert [out.tokens for out in writer.generate(prompts, max_tokens=8)] == expected and not shared
    writer.release()


LENGTHS: list[tuple[list[int], list[list[int]]]] = [
    ([], []), ([5], [[0]]), ([5, 5], [[0, 1]]), ([9, SPARE + 9], [[0, 1]]), ([9, SPARE + 10], [[0], [1]]),
    ([800, 1600], [[0], [1]]), ([900, 1600], [[0, 1]]), ([20, 2000, 20, 1900, 30], [[0, 2, 4], [1, 3]]),
    ([100, 200, 300], [[0], [1, 2]]),
]  # fmt: skip


@pytest.mark.parametrize(("lengths", "groups"), LENGTHS, ids=str)
def test_texts_that_share_runs_have_little_padding(
    lengths: list[int], groups: list[list[int]], generator: Callable[..., TextGenerator]
) -> None:
    layout = generator()._model.layout
    texts = [Waiting(Request(False, [1] * (n + 1), n + 1, 1, [0.0]), n, Sampling()) for n in lengths]
    found = shared_groups(layout, texts)
    assert found == groups
    padded = sum(len(group) * max(lengths[n] for n in group) for group in found)
    assert padded <= sum(lengths) * 1.3 + SPARE * len(found)


def test_a_short_text_beside_a_long_one(generator: Callable[..., TextGenerator], shared: list[int]) -> None:
    """takes no memory of the long one's length: short ones share a run."""
    writer = generator()
    prompts = [PROMPT, (PROMPT * 40)[:400], SHORT]
    expected = [writer.generate(prompt, max_tokens=6).tokens for prompt in prompts]
    writer.reset()
    assert [out.tokens for out in writer.generate(prompts, max_tokens=6)] == expected and {*shared} == {2}
