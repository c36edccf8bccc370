"""Checks a provider of anyone (docs/extending.md#providers):

    python -m pyruntime.provider_check my_package:provider [OPTION=VALUE …] [MODEL.onnx …]

runs small models in several sizes, and the given ones, on the provider and on WebAssembly, and prints what is wrong.
Inputs of MODEL.onnx are the arrays in MODEL.npz beside it, or random ones. Exit status: 0 without findings, 1 with
some, 2 if the provider cannot be checked.
"""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime import ArrayProvider, InferenceSession, InvalidInput, PyRuntimeError, TrainingSession, register_provider
from pyruntime.cli.common import random_array
from pyruntime.codegen.array_provider import Bind, Job, Part
from pyruntime.ir.dtype import BOOL
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.storage import code_of
from pyruntime.provider_models import MODELS, Arrays, has_weights, small_model

# What can be wrong: the advice that follows the finding.
ADVICE = {
    "computes other values than WebAssembly": "Compute what the kernel's expression says, or refuse it in supports.",
    "leaves elements of an output unwritten": "Write every element: all are undefined before the job.",
    "reads its outputs": "Their elements are undefined before the job: write them first.",
    "changes an input": "Copy the array first: others read it, too.",
    "computes other values when it runs again": "Keep nothing between runs that changes results.",
    "computes other values in concurrent runs": "Keep in the job what it writes, or set concurrent = False.",
    "changes its answers": "Answer by the kernel alone.",
    "accept values of any type": "Give the option a default of type bool, int, float or str, or raise InvalidInput.",
    "ends other sessions, too": "Return a new object from open, with what close ends.",
    "does not end": "Use time limits for what it waits for.",
    "raises what is no Exception": "Raise an Exception, so that the node moves to the next provider.",
    "raises an exception": "Refuse in supports what it cannot run.",
    "gets in the way when a job fails": "It is also called after an error, and must not raise one then.",
    "leaves threads running": "Each session has left some: end in close what open, compile or a job began.",
    "computes other values with several sessions": "Keep in each session's object what its jobs write.",
    "gives back other elements than upload has copied": "Copy all elements, to and from the start of the memory.",
    "trains other weights than WebAssembly": "Compute from the arrays of each run: weights change between runs.",
    "is not written, but run_start is": "Write both: run_end is also called after a run that failed.",
    "takes no kernel of these models": "Check with options with which it takes small kernels, or with a model.",
}
_numbers = itertools.count()


class Notes:
    """What the check has seen.

    found: member and fault of each finding, and where it was first; count: of findings, with repeated ones; taken:
    kernels by kind; phase: the member and the fault that any finding means now, if not its own; inside: the member
    that was called last; threads: those that the members began; failing: the member that fails on purpose, or ""
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], str] = {}
        self.taken: Counter[str] = Counter()
        self.inside = self.case = ""
        self.phase: tuple[str, str] | None = None
        self.count = 0
        self.failing = ""
        self.threads: set[threading.Thread] = set()

    def add(self, member: str, fault: str, detail: str = "") -> None:
        self.count += 1
        self.found.setdefault(self.phase or (member, fault), f" ({self.case}{': ' if detail else ''}{detail})")

    def call(self, member: str, method: Callable[..., Any], *args: Any) -> Any:
        """The result of a member of the provider. Notes what it raises, and the threads that it begins."""
        self.inside, before = member, set(threading.enumerate())
        try:
            return method(*args)
        except Exception as e:
            if not isinstance(e, InvalidInput) or member != "open":
                self.add(member, "raises an exception", f"{type(e).__name__}: {e}")
            raise
        except BaseException as e:
            self.add(member, "raises what is no Exception", type(e).__name__)
            raise
        finally:
            if not self.phase:
                self.threads |= set(threading.enumerate()) - before

    def texts(self) -> list[str]:
        return [f"{member} {fault}{place}. {ADVICE[fault]}" for (member, fault), place in self.found.items()]


class Watched(ArrayProvider):
    """A provider whose members' calls are checked. One with a memory of its own is a `WatchedDevice`."""

    def __init__(self, inner: ArrayProvider, notes: Notes, name: str) -> None:
        self.inner, self.notes = inner, notes
        self.__dict__.update(name=name, options=inner.options)  # of the class in other providers
        self.__dict__.update(takes_parts=inner.takes_parts, concurrent=inner.concurrent)

    def open(self, options: Mapping[str, Any], threads: int) -> ArrayProvider:
        opened = self.notes.call("open", self.inner.open, options, threads)
        return watched(opened, self.notes, self.name) if isinstance(opened, ArrayProvider) else opened

    def compile(self, part: Part) -> Bind:
        self.notes.taken.update(getattr(k, "routine", type(k).__name__) for k in part.kernels)
        bind = self.notes.call("compile", self.inner.compile, part)

        def bind_watched(inputs: Sequence[Any], outputs: Sequence[Any], symbols: Mapping[Any, int]) -> Job:
            self._fail("bind")
            job = self.notes.call("bind", bind, inputs, outputs, symbols)
            return (lambda: self._job(part, job, inputs, outputs)) if callable(job) else job

        return bind_watched if callable(bind) else bind

    def _fail(self, member: str) -> None:
        if self.notes.failing == member:
            raise RuntimeError("an error that the check made")

    def read(self, t: Tensor, array: Any) -> Any:
        """The bytes of a tensor."""
        return array.copy().reshape(-1).view(np.uint8)

    def fill(self, t: Tensor, array: Any, filler: int) -> None:
        array.reshape(-1).view(np.uint8)[...] = filler

    def _job(self, part: Part, job: Job, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Runs a job three times, with its outputs full of one byte, the same, and another one."""
        self._fail("job")
        if self.notes.phase:
            self.notes.call("job", job)
            return
        given, results = [*zip(part.inputs, inputs, strict=True)], [*zip(part.outputs, outputs, strict=True)]
        before = [self.read(*x).tobytes() for x in given]
        made = []
        low, high = (0, 1) if any(t.dtype is BOOL for t in part.outputs) else (0xFF, 0x3F)
        for filler in (low, low, high):
            for y in results:
                self.fill(*y, filler)
            self.notes.call("job", job)
            made.append([self.read(*y) for y in results])
        if before != [self.read(*x).tobytes() for x in given]:
            self.notes.add("job", "changes an input")
            return
        first, again, other = map(np.concatenate, made)
        differ = first != other
        if (first != again).any():
            self.notes.add("job", "computes other values when it runs again")
        elif differ.any():
            is_filler = (first[differ] == low).all() and (other[differ] == high).all()
            self.notes.add("job", "leaves elements of an output unwritten" if is_filler else "reads its outputs")


def _asked(name: str) -> Callable[..., Any]:
    def ask(self: Any, *args: Any) -> Any:
        answers = [self.notes.call(name, getattr(self.inner, name), *args) for _ in range(2)]
        if name != "packs" and answers[0] != answers[1]:
            self.notes.add(name, "changes its answers", f"{answers[0]!r}, then {answers[1]!r}")
        return answers[0]

    return ask


def _called(name: str) -> Callable[..., Any]:
    return lambda self, *args: self.notes.call(name, getattr(self.inner, name), *args)


for _name in ("supports", "supports_node", "cost", "reads", "fuses", "packs"):
    setattr(Watched, _name, _asked(_name))
for _name in ("run_start", "run_end", "close"):
    setattr(Watched, _name, _called(_name))


class WatchedDevice(Watched):
    """The same with a memory of its own."""

    def allocate(self, size: int) -> Any:
        return self.notes.call("allocate", self.inner.allocate, size)

    def upload(self, handle: Any, array: Any) -> None:
        self.notes.call("upload", self.inner.upload, handle, array)
        back = np.empty_like(array)
        self.notes.call("download", self.inner.download, handle, back)
        if back.tobytes() != array.tobytes():
            self.notes.add("download", "gives back other elements than upload has copied")

    def download(self, handle: Any, array: Any) -> None:
        self.notes.call("download", self.inner.download, handle, array)

    def free(self, handle: Any) -> None:
        self.notes.call("free", self.inner.free, handle)

    def read(self, t: Tensor, array: Any) -> Any:
        found = np.empty(array.shape, code_of(t.dtype))
        if found.size:
            self.inner.download(array.handle, found)
        return found.reshape(-1).view(np.uint8)

    def fill(self, t: Tensor, array: Any, filler: int) -> None:
        made = np.full(prod(array.shape) * t.dtype.size, filler, np.uint8)
        if made.size:
            self.inner.upload(array.handle, made.view(code_of(t.dtype)).reshape(array.shape))


def watched(inner: ArrayProvider, notes: Notes, name: str) -> Watched:
    has_memory = type(inner).allocate is not ArrayProvider.allocate
    return (WatchedDevice if has_memory else Watched)(inner, notes, name)


# ── models and sessions ───────────────────────────────────────────────────────────────────────────────────────────────

Feeds = list[Arrays]


def models_of(paths: Sequence[str], names: Sequence[str] = ()) -> Mapping[str, tuple[bytes, Feeds]]:
    """Models and feeds: the small ones of these names (without names all), and those in files."""
    found = {}
    for name in names or MODELS:
        found[name] = small_model(name, False)
        if has_weights(name):
            found[f"{name}, constant weights"] = small_model(name, True)
    for path in paths:
        beside = Path(path).with_suffix(".npz")
        inputs = InferenceSession(path).get_inputs()
        feeds = dict(np.load(beside)) if beside.is_file() else {i.name: random_array(i, {}) for i in inputs}
        found[path] = Path(path).read_bytes(), [feeds]
    return found


class Check:
    """The check of one provider. limit: seconds that one model may take; has_shared_threads: whether an earlier session
    began threads, which all sessions may share"""

    def __init__(self, provider: ArrayProvider, options: Mapping[str, Any], limit: float) -> None:
        self.notes = Notes()
        if not isinstance(provider, ArrayProvider):
            raise InvalidInput(f"{provider!r} is no ArrayProvider")
        self.name = f"{provider.name} {next(_numbers)}"
        self.provider, self.options, self.limit = provider, options, limit
        self.has_shared_threads = False
        register_provider(watched(provider, self.notes, self.name))

    def session(self, model: bytes, options: Mapping[str, Any]) -> InferenceSession:
        return InferenceSession(model, providers=[(self.name, dict(options)), "wasm"])

    def compare(self, run: Callable[[], Sequence[Any]], expected: Sequence[Any]) -> None:
        """Notes values that a run returns which differ from those of WebAssembly."""
        known = self.notes.count
        try:
            is_equal = all(map(_is_close, run(), expected))
        except BaseException as e:
            if self.notes.count == known:
                self.notes.add("the provider", "raises an exception", f"{type(e).__name__}: {e}")
            return
        if not is_equal and self.notes.count == known:
            self.notes.add("compile", "computes other values than WebAssembly")

    def model(self, model: bytes, feeds: Feeds) -> None:
        """Checks all members with one model; the lives of sessions if it has a new kind of kernels."""
        notes, wasm, known, kinds = self.notes, InferenceSession(model), self.notes.count, set(self.notes.taken)
        expected = [wasm.run(None, f) for f in feeds]
        notes.phase = None
        one = self.session(model, self.options)
        for f, e in zip(feeds, expected, strict=True):
            self.compare(lambda f=f: one.run(None, f), e)  # type: ignore[misc]
        for moved in one.explain()["moved"]:
            if notes.count == known:
                notes.add("the provider", "raises an exception", moved["reason"])
        if notes.count == known and notes.taken.keys() - kinds:
            self.lives(model, one, feeds, expected)
        one.release()
        for thread in notes.threads:
            thread.join(0.5)
            if thread.is_alive() and self.has_shared_threads:
                notes.phase = None
                notes.add("close", "leaves threads running", thread.name)
        self.has_shared_threads |= bool(notes.threads)
        notes.threads.clear()

    def lives(self, model: bytes, one: InferenceSession, feeds: Feeds, expected: Sequence[Any]) -> None:
        """Checks concurrent runs of one session and of two, of which one ends, and members that fail."""
        notes = self.notes
        other = self.session(model, self.options)
        (small, first), (large, last) = ((feeds[n], expected[n]) for n in (0, min(3, len(feeds) - 1)))
        notes.phase = "job", "computes other values in concurrent runs"
        self.concurrently([(one, small, first), (one, large, last)])
        notes.phase = "job", "computes other values with several sessions"
        self.concurrently([(one, large, last), (other, small, first)])
        notes.phase = "close", "ends other sessions, too"
        other.run(None, feeds[0])
        other.release()
        self.compare(lambda: one.run(None, feeds[0]), expected[0])
        notes.phase = "run_end", "gets in the way when a job fails"
        for notes.failing in ("job", "bind"):
            failing = self.session(model, self.options)
            self.compare(lambda f=failing: f.run(None, feeds[0]), expected[0])  # type: ignore[misc]
            failing.release()
        notes.failing = ""

    def concurrently(self, runs: Sequence[tuple[InferenceSession, Any, Any]]) -> None:
        """Runs sessions with feeds in a thread each, and compares."""

        together = threading.Barrier(len(runs))

        def several(session: InferenceSession, f: Any, e: Any) -> None:
            for _ in range(5):
                together.wait()
                self.compare(lambda: session.run(None, f), e)

        threads = [threading.Thread(target=several, args=run, daemon=True) for run in runs]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # so that the threads take turns within a job
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        sys.setswitchinterval(interval)

    def trains(self) -> None:
        """Checks a training session: weights are states, which the steps change."""
        if self.notes.found:
            return  # it would only repeat them
        self.notes.phase = None
        model, (feeds, *_) = small_model("product", True)
        target = {"target": np.zeros((1, 96), np.float32)}

        def losses(*providers: Any) -> list[float]:
            options: Any = {"loss": {"mse": "y"}, "optimizer": {"sgd": 0.1}}
            with TrainingSession(model, providers=[*providers, "wasm"], **options) as session:
                return [float(session.step({**feeds, **target}).loss) for _ in range(4)]

        expected, known = losses(), self.notes.count
        found = losses((self.name, dict(self.options)))
        if self.notes.count == known and not np.allclose(found, expected, rtol=1e-3):
            self.notes.add("job", "trains other weights than WebAssembly")

    def members(self, model: bytes) -> None:
        """Checks members that need no run."""
        notes, kind = self.notes, type(self.provider)
        if kind.run_start is not ArrayProvider.run_start and kind.run_end is ArrayProvider.run_end:
            notes.add("run_end", "is not written, but run_start is")
        for key, default in self.provider.options.items():
            if isinstance(default, str):
                continue  # any value has a text
            try:
                self.session(model, {**self.options, key: object()}).release()
                notes.add("options", "accept values of any type", key)
            except InvalidInput:
                pass

    def run(self, models: Mapping[str, tuple[bytes, Feeds]], has_training: bool = True) -> list[str]:
        """Sentences, one for each finding."""
        notes = self.notes
        first = next(iter(models.values()))[0]
        works: list[tuple[str, Callable[[], None]]] = [("without a run", partial(self.members, first))]
        works += [(name, partial(self.model, *model)) for name, model in models.items()]
        works += [("training", self.trains)] * has_training
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for notes.case, work in works:
                errors: list[BaseException] = []
                thread = threading.Thread(target=_kept, args=(work, errors), daemon=True)
                thread.start()
                thread.join(self.limit)
                if thread.is_alive():
                    notes.phase = None
                    notes.add(notes.inside, "does not end", f"{self.limit:g} s")
                    break
                if errors and (isinstance(errors[0], InvalidInput) or not notes.found):
                    raise errors[0]
        if not notes.taken and not notes.found:
            notes.case = f"{len(models)} models"
            notes.add("supports", "takes no kernel of these models")
        return notes.texts()


def _kept(work: Callable[[], None], errors: list[BaseException]) -> None:
    try:
        work()
    except BaseException as e:
        errors.append(e)


def _is_close(x: Any, y: Any) -> bool:
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "fc":
        return bool(np.all(x == y))
    tolerance = 1e-2 if y.itemsize == 2 else 1e-4
    scale = max(1.0, float(np.abs(y, where=np.isfinite(y), out=np.zeros_like(y)).max(initial=0)))
    return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    module, _, attribute = arguments[0].partition(":")
    options = dict(text.split("=", 1) for text in arguments[1:] if "=" in text)
    try:
        check = Check(getattr(import_module(module), attribute or "provider"), options, limit=60)
        found = check.run(models_of([a for a in arguments[1:] if "=" not in a]))
    except (ImportError, AttributeError, PyRuntimeError) as e:
        print(f"{arguments[0]} cannot be checked: {e}")
        return 2
    for text in found:
        print(text)
    taken = ", ".join(f"{count} {kind}" for kind, count in sorted(check.notes.taken.items())) or "none"
    print(f"Findings: {len(found)}. Kernels that it compiled: {taken}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
