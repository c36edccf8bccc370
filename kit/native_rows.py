"""Runs a combination of features (kit/feature_table.py) in Python."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from kit.counting_decoders import STATIC
from kit.feature_pairs import PROVIDERS
from kit.row_tasks import Row, weights_of
from pyruntime import (
    Batcher,
    InferenceSession,
    OrtValue,
    RunOptions,
    SessionOptions,
    TextGenerator,
    TrainingSession,
    on,
)
from pyruntime.errors import DeviceLost, SessionFailed, Terminated

SAMPLING = {"sample_from": "logits", "sample_positions": 1, "sample_masks": True}


class NativeRow:
    """task: of kit/row_tasks.py; folder: for its files, and the cache of Programs"""

    def __init__(self, task: dict[str, Any], folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.task, self.folder, self.patch = task, folder, patch
        self.row: Row = task["row"]
        self.events: list[str] = []
        self.device_use = threading.Lock()  # wgpu-native aborts if a device is destroyed while another thread submits
        self.model = base64.b64decode(task["model"])
        self.file = folder / "model.onnx"
        self.file.write_bytes(self.model)

    def run(self) -> list[Any]:
        """The results of the two halves."""
        with ExitStack() as stack:
            if self.has("metrics and events"):
                stack.callback(on("session", self.note))
            if self.has("refused shaders"):
                self.refuse_shaders()
            if self.row["model"].startswith("Program") and not self.has("wasm"):
                self.allow_loops()
            work = getattr(self, self.row["caller"].lower())
            if self.has("workers"):
                pool = stack.enter_context(ThreadPoolExecutor(1))
                return pool.submit(lambda: list(work(stack))).result()
            return list(work(stack))

    def note(self, event: Mapping[str, Any]) -> None:
        """Keep the type of an event, unless it is of a run that failed."""
        if event.get("outcome") != "failed":
            self.events.append(event["type"])

    def has(self, feature: str) -> bool:
        return feature in self.row.values()

    # ── sessions ──

    def options(self, **more: Any) -> SessionOptions:
        options = SessionOptions(**more)
        if self.has("outputs on the GPU"):
            options.preferred_output_location = "gpu-buffer"
        if self.has("memory limits"):
            options.memory_limit = 64 << 20
        if self.has("time-outs"):
            options.compile_time_limit, options.gpu_timeout = 60.0, 30.0
        if self.row["caller"] != "training":
            options.adapters = {name: base64.b64decode(data) for name, data in self.task["adapters"].items()}
        return options

    @property
    def providers(self) -> list[Any]:
        return PROVIDERS[self.row["provider"]]

    def source(self, **more: Any) -> Path:
        """The file of the model or of the Program. more: options that a Program was exported with"""
        if self.has("cached Program"):
            InferenceSession(self.file, self.options(**more), self.providers).release()
        if not self.row["model"].startswith("Program"):
            return self.file
        names = ["wasm"] if self.has("wasm") else ["webgpu", "wasm"]
        plain = SessionOptions(**more)
        plain.adapters = self.options().adapters
        with_weights = self.has("Program with weights")
        maker = InferenceSession(self.file, plain)
        program = maker.export(with_weights, providers=names, assume=["software"] if "webgpu" in names else [])
        maker.release()
        file = self.folder / "model.pyrt"
        file.write_bytes(program)
        return file

    def opened(self, stack: ExitStack, **more: Any) -> InferenceSession:
        session = InferenceSession(self.source(**more), self.options(**more), self.providers)
        stack.callback(session.release)
        if self.has("several sessions"):
            other = InferenceSession(self.model, providers=self.providers)
            stack.callback(other.release)
            self.others(stack, lambda: other.run(None, self.first_feeds()))
        return session

    def others(self, stack: ExitStack, work: Callable[[], Any]) -> None:
        """Let another session run until the end."""
        ended = threading.Event()
        errors: list[BaseException] = []

        def repeat() -> None:
            while not ended.is_set():
                try:
                    with self.device_use:
                        work()
                except BaseException as error:
                    if not (isinstance(error, SessionFailed) and self.has("lost devices")):  # as training does then
                        errors.append(error)
                    return
                ended.wait(0.005)

        thread = threading.Thread(target=repeat)
        thread.start()

        def end() -> None:
            ended.set()
            thread.join()
            if errors:
                raise errors[0]

        stack.callback(end)

    def first_feeds(self) -> dict[str, Any]:
        """Feeds of a run by themselves."""
        if not self.task["decodes"]:
            return {"x": np.array(self.task["feeds"][0], np.float32)}
        return self.decoder_feeds([1, 2], 0, self.empty())

    def between(self, session: Any, run: Callable[[RunOptions], Any]) -> None:
        """What happens between the halves. run: with options that stop it"""
        if self.has("stops"):
            options = RunOptions()
            options.terminate = True
            with pytest.raises(Terminated):
                run(options)
        if self.has("trim"):
            session.trim()
        if self.has("lost devices"):
            with self.device_use:
                lose_device()

    def watched(self, session: Any, *types: str) -> None:
        if self.has("metrics and events"):
            assert session.metrics()["runs"] >= 1 and session.metrics()["failed"] <= self.has("lost devices")
            for _ in range(200):
                if {"created", *types} <= set(self.events):
                    break
                threading.Event().wait(0.01)
            assert {"created", *types} <= set(self.events)

    # ── callers ──

    def active(self) -> RunOptions:
        options = RunOptions()
        for name, weight in self.task["active"].items():
            options.add_active_adapter(name, weight)
        return options

    def runs(self, stack: ExitStack) -> Iterator[Any]:
        session = self.opened(stack)
        yield from self.decoding(session, 1, self.step) if self.task["decodes"] else self.plain(session)
        self.watched(session, "run")

    def plain(self, session: InferenceSession) -> Iterator[Any]:
        arrays = [np.array(x, np.float32) for x in self.task["feeds"]]
        yield [_array(session.run(None, {"x": x}, self.active())[0]) for x in arrays]
        self.between(session, lambda options: session.run(None, {"x": arrays[0]}, options))
        yield [_array(session.run(None, {"x": x}, self.active())[0]) for x in arrays]

    def batcher(self, stack: ExitStack) -> Iterator[Any]:
        session = self.opened(stack)
        batcher = stack.enter_context(Batcher(session, size=8, wait=5.0))
        pool = stack.enter_context(ThreadPoolExecutor(3))
        if self.task["decodes"]:

            def step(_: Any, feeds: dict[str, Any]) -> list[Any]:
                return batcher.run(None, feeds, self.active())

            yield from self.decoding(session, 2, step, pool)
        else:
            arrays = [np.array(x, np.float32) for x in self.task["feeds"]]

            def send(x: np.ndarray) -> Any:
                return batcher.run(None, {"x": x}, self.active())[0]

            yield list(pool.map(send, arrays))
            self.between(session, lambda options: batcher.run(None, {"x": arrays[0]}, options))
            yield list(pool.map(send, arrays))
        self.watched(session, "run")

    def textgenerator(self, stack: ExitStack) -> Iterator[Any]:
        words = Tokenizer.from_str(self.task["tokenizer"])
        writer = TextGenerator(
            self.source(**SAMPLING), words, options=self.options(), providers=self.providers,
            adapters=self.task["active"],
        )  # fmt: skip
        stack.callback(writer.release)
        session = writer._model.session
        if self.has("several sessions"):
            other = TextGenerator(self.model, providers=self.providers)
            stack.callback(other.release)
            self.others(stack, lambda: other.generate(self.task["prompts"][1], max_tokens=2))
        halves = self.streams if self.has("several chats") and not self.has("beams") else self.texts
        yield from halves(writer, {"format": self.task["format"]}, partial(self.between, session))
        self.watched(session, "run")

    def texts(self, writer: TextGenerator, how: dict[str, Any], between: Callable[[Any], None]) -> Iterator[Any]:
        """Whole texts, of which the second half is a further turn."""
        prompts, (first, more) = self.task["prompts"][: 1 + self.has("several chats")], self.task["tokens"]
        how = {**how, "num_beams": self.task["beams"]}
        begun = [found.tokens for found in writer.generate(prompts, max_tokens=first, **how)]
        yield begun
        between(self.stopped_text(writer))
        longer = [prompt + tokens for prompt, tokens in zip(prompts, begun, strict=True)]
        yield [found.tokens for found in writer.generate(longer, max_tokens=more, **how)]

    def streams(self, writer: TextGenerator, how: dict[str, Any], between: Callable[[Any], None]) -> Iterator[Any]:
        """Texts that take turns, and share caches between the halves."""
        first, more = self.task["tokens"]
        streams = [writer.stream(prompt, max_tokens=first + more, **how) for prompt in self.task["prompts"]]

        def turns(count: int) -> list[list[int]]:
            pieces = [[next(stream) for stream in streams] for _ in range(count)]
            return [[ord(piece) - self.task["letter"] for piece in text] for text in zip(*pieces, strict=True)]

        yield turns(first)
        between(self.stopped_text(writer))
        yield turns(more)

    def stopped_text(self, writer: TextGenerator) -> Callable[[RunOptions], Any]:
        """A text ends if the caller stops to iterate."""

        def run(_: RunOptions) -> None:
            for _piece in writer.stream(self.task["prompts"][1], max_tokens=4):
                break
            raise Terminated(f"after {len(writer.last.tokens)} token")

        return run

    # ── decoders ──

    def step(self, session: InferenceSession, feeds: dict[str, Any]) -> list[Any]:
        values = {n: x if isinstance(x, OrtValue) else OrtValue.ortvalue_from_numpy(x) for n, x in feeds.items()}
        names = [o.name for o in session.get_outputs()]
        return session.run_with_ort_values(names, values, self.active())

    def empty(self) -> Any:
        shape = {"growing caches": (1, 1, 0, 1), "static caches": (1, 1, STATIC, 1), "states": (1, 1)}
        return np.zeros(shape[self.row["caches"]], np.float32)

    def decoder_feeds(self, tokens: Sequence[int], at: int, past: Any) -> dict[str, Any]:
        feeds = {"input_ids": np.array([tokens], np.int64)}
        feeds["past_state.0" if self.has("states") else "past_key_values.0.key"] = past
        if self.has("static caches"):
            feeds["cache_position"] = np.arange(at, at + len(tokens))
        return feeds

    def decoding(
        self, session: InferenceSession, count: int, step: Callable[[Any, dict[str, Any]], list[Any]], pool: Any = None
    ) -> Iterator[Any]:  # fmt: skip
        """The tokens of so many texts, whose caches stay from the first half to the second one."""
        texts = [Text([*prompt], self.empty()) for prompt in self.task["prompts"][:count]]

        def write(text: Text, tokens: int) -> list[int]:
            found: list[int] = []
            while len(found) < tokens:
                feeds = self.decoder_feeds(text.tokens[text.cached :], text.cached, text.past)
                try:
                    logits, past = step(session, feeds)
                except DeviceLost:
                    if text.cached == 0 or not self.has("lost devices"):
                        raise
                    text.cached, text.past = 0, self.empty()  # the cache was on the device
                    continue
                text.cached, text.past = len(text.tokens), past
                found.append(int(_array(logits)[0, -1].argmax()))
                text.tokens.append(found[-1])
            return found

        first, more = self.task["tokens"]
        every = pool.map if pool else map
        yield list(every(lambda text: write(text, first), texts))
        self.between(session, lambda options: session.run(None, self.first_feeds(), options))
        yield list(every(lambda text: write(text, more), texts))

    # ── training ──

    def training(self, stack: ExitStack) -> Iterator[Any]:
        def opened() -> TrainingSession:
            session = TrainingSession(
                self.file if self.has("cached Program") else self.source(), loss={"mse": "y"}, lora=self.task["lora"],
                optimizer={"sgd": {"rate": self.task["rate"]}}, sess_options=self.options(), providers=self.providers,
            )  # fmt: skip
            stack.callback(session.release)
            return session

        if self.has("cached Program"):
            opened()
        session = opened()
        if self.has("several sessions"):
            other = opened()
            self.others(stack, lambda: other.step(self.batch(2)))
        yield self.trained(session, self.batch(0))
        checkpoint = session.state()
        self.between(session, lambda options: session.step(self.batch(0), run_options=options))
        try:
            yield self.trained(session, self.batch(1))
        except SessionFailed:
            if not self.has("lost devices"):
                raise
            session.load(checkpoint)  # the weights were on the device
            yield self.trained(session, self.batch(1))
        self.watched(session, "step")

    def batch(self, number: int) -> dict[str, Any]:
        x, target = (np.array(self.task[name][number], np.float32) for name in ("feeds", "targets"))
        return {"x": x, "target": target}

    def trained(self, session: TrainingSession, batch: dict[str, Any]) -> list[Any]:
        loss = session.step(batch).loss
        file = self.folder / "trained.onnx"
        session.export(file)
        return [loss, *weights_of(file.read_bytes())]

    # ── faults ──

    def refuse_shaders(self) -> None:
        from pyruntime.providers.webgpu import wgpu_device
        from pyruntime.providers.webgpu.wgpu_host import GpuHost

        compile_shader = GpuHost._compile

        def refuse(host: Any, shader: Any, label: str) -> Any:
            return compile_shader(host, replace(shader, source=shader.source.replace("fn main", "fn main(")), label)

        self.patch.setattr(wgpu_device, "_devices", {})  # with the pipelines of earlier sessions
        self.patch.setattr(GpuHost, "_compile", refuse)

    def allow_loops(self) -> None:
        """Let Mesa's llvmpipe run Programs whose loops it would leave if the feeds were long."""
        from pyruntime.providers.webgpu import wgpu_device

        describe = wgpu_device._describe
        self.patch.setattr(wgpu_device, "_describe", lambda found: replace(describe(found), iterations=0))
        self.patch.setattr(wgpu_device, "_devices", {})


class Text:
    def __init__(self, tokens: list[int], past: Any) -> None:
        self.tokens, self.past, self.cached = tokens, past, 0


def lose_device() -> None:
    from pyruntime.providers.webgpu import wgpu_device

    wgpu_device.shared_device().wgpu.destroy()


def _array(y: Any) -> np.ndarray:
    return y if isinstance(y, np.ndarray) else y.numpy() if isinstance(y, OrtValue) else y.get_data()
