"""Sessions as values: pickled, copied, forked; weights in RAM once for all processes (docs/use/processes.md)."""

from __future__ import annotations

import copy
import errno
import gc
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pyruntime
from kit import adapter_networks
from pyruntime import Batcher, InferenceSession, LoraAdapter, RunOptions, SessionOptions, TrainingSession
from pyruntime.api.ort_value import OrtValue
from pyruntime.errors import OutOfMemory, SessionFailed
from pyruntime.native.sessions import weights_of_processes
from pyruntime.providers.wasm.shared_pages import SharedPages
from tests.training.test_adapters import peft_file

WIDTH = 1100  # 4.8 MB of weights, which is enough to be shared
X = np.random.default_rng(1).standard_normal((3, WIDTH)).astype(np.float32)
DIGITS = Path(__file__).parents[1] / "demo/digits/digits.onnx"
shares = pytest.mark.skipif(not weights_of_processes.is_supported(), reason="processes here cannot share pages")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "cache"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    weight = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32)
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[n, k] x) => (float[n, m] y) {'
    model = onnx.parser.parse_model(f"{text} a = MatMul (x, w)  b = Add (a, v)  y = Relu (b) }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight[3], "v"))
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("holder", ["numpy", "sys"])
def test_a_process_ends_quietly(holder: str) -> None:
    """Also with a session in a module that ends after wasmtime's, as frameworks hold them."""
    code = f"import {holder}, pyruntime; {holder}.held = pyruntime.InferenceSession({str(DIGITS)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def result(session: InferenceSession) -> np.ndarray:
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: X})[0]
    return found


def external(path: Path) -> Path:
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin")
    return path


def exported(path: Path) -> Path:
    (path.parent / "model.pyrt").write_bytes(InferenceSession(path).export())
    return path.parent / "model.pyrt"


MODELS: dict[str, Callable[[Path], Any]] = {
    "path": str,
    "bytes": Path.read_bytes,
    "mutable bytes": lambda path: bytearray(path.read_bytes()),
    "external data": external,
    "a Program": exported,
    "bytes of a Program": lambda path: InferenceSession(path).export(weights=True),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", ["pickle", "copy", "deepcopy"])
def test_a_session_is_a_value(model: str, way: str, path: Path) -> None:
    session = InferenceSession(MODELS[model](path))
    ways = {"pickle": lambda s: pickle.loads(pickle.dumps(s)), "copy": copy.copy, "deepcopy": copy.deepcopy}
    other = ways[way](session)
    want = result(session)
    session.release()
    np.testing.assert_array_equal(result(other), want)


def test_options_travel(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means the file that was opened, wherever the other process is."""
    monkeypatch.chdir(path.parent)
    options = SessionOptions()
    options.intra_op_num_threads, options.logid, options.outputs = 2, "mine", ["y"]
    options.add_initializer("v", OrtValue.ortvalue_from_numpy(np.zeros(WIDTH, np.float32)))
    session = InferenceSession("model.onnx", options, [("webgpu", {"allow_software": True}), "wasm"])
    session.disable_fallback()
    session.note = {"of": "a program"}  # type: ignore[attr-defined]
    monkeypatch.chdir(tmp_path.parent)
    other = pickle.loads(pickle.dumps(session))
    assert other.get_session_options().intra_op_num_threads == 2 and other.get_session_options().logid == "mine"
    assert other.note == {"of": "a program"} and other.get_providers() == session.get_providers()
    assert not other._has_fallback and other._native._recovery.is_enabled is False
    np.testing.assert_array_equal(result(other), result(session))


@pytest.mark.parametrize("way", ["a path", "bytes", "an object"])
def test_adapters_travel(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "style.safetensors"
    file.write_bytes(peft_file(adapter_networks.peft(np.random.default_rng(1), 4)))
    monkeypatch.chdir(tmp_path)
    adapter = {"a path": file.name, "bytes": file.read_bytes(), "an object": LoraAdapter(file)}[way]
    session = InferenceSession(adapter_networks.Decoder().build(), SessionOptions(adapters={"style": adapter}))
    monkeypatch.chdir(tmp_path.parent)
    other = pickle.loads(pickle.dumps(session))
    options = RunOptions()
    options.add_active_adapter("style")
    feeds = {"ids": adapter_networks.texts()[0]}
    (want,), (plain,), (found,) = (
        s.run(None, feeds, o) for s, o in ((session, options), (other, None), (other, options))
    )
    np.testing.assert_array_equal(found, want)
    assert not np.array_equal(found, plain)


def test_files_of_weights_in_memory_travel(path: Path) -> None:
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin")
    data = bytearray((path.parent / "weights.bin").read_bytes())
    options = SessionOptions()
    options.add_external_initializers_from_files_in_memory(["weights.bin"], [data], [len(data)])
    session = InferenceSession(path.read_bytes(), options)
    (path.parent / "weights.bin").unlink()
    np.testing.assert_array_equal(result(pickle.loads(pickle.dumps(session))), result(session))


class Mine(InferenceSession):
    """Of a program, with a constructor of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "model.onnx")
        self.folder = folder


def test_a_subclass(path: Path) -> None:
    other = pickle.loads(pickle.dumps(Mine(path.parent)))
    assert type(other) is Mine and other.folder == path.parent
    result(other)


def test_what_cannot_travel(path: Path) -> None:
    session = InferenceSession(path)
    data = pickle.dumps(session)
    session.release()
    with pytest.raises(SessionFailed, match="released"):
        pickle.dumps(session)
    path.unlink()
    with pytest.raises(pyruntime.PyRuntimeError, match=r"model\.onnx"):
        pickle.loads(data)


@pytest.mark.parametrize(
    "value",
    [np.arange(3, dtype=np.float32), np.array(["a", "ü"], object), np.zeros((0, 2), np.int64)],
    ids=["numbers", "texts", "empty"],
)
def test_ort_values_travel(value: np.ndarray) -> None:
    found = pickle.loads(pickle.dumps(OrtValue.ortvalue_from_numpy(value)))
    assert (found.numpy() == value).all() and found.shape() == [*value.shape]
    bfloat = OrtValue.ortvalue_from_shape_and_type([2], onnx.TensorProto.BFLOAT16)
    assert copy.deepcopy(bfloat).element_type() == onnx.TensorProto.BFLOAT16


def test_training_goes_on_where_it_was() -> None:
    feeds = {
        "image": np.random.default_rng(0).random((4, 1, 28, 28), np.float32),
        "target": np.eye(10, dtype=np.float32)[:4],
    }
    session = TrainingSession(DIGITS, loss={"mse": "probabilities"}, optimizer="adamw")
    session.step(feeds)
    other = pickle.loads(pickle.dumps(session))
    for _ in range(3):
        assert other.step(feeds) == session.step(feeds)


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def serve(session: InferenceSession, results: Any) -> None:
    results.put((result(session), weights_private()))


def weights_private() -> int:
    """Bytes of this process's pages that came from other processes, without those that it changed."""
    found, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *others = line.split()
        if not first.endswith(":"):
            is_ours = "memfd:pyruntime" in line
        elif first == "Rss:" and is_ours:
            found += int(others[0]) * 1024
    return found


@shares
@pytest.mark.parametrize(("method", "threads"), [("fork", 2), ("spawn", 1), ("forkserver", 1)])
def test_processes_map_the_weights(method: str, threads: int, path: Path) -> None:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(path, options)
    want = result(session)
    context: Any = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    if method == "fork":
        session._native.share_weights()
    process = context.Process(target=serve, args=(session, results))
    process.start()
    found, mapped = results.get()
    process.join()
    np.testing.assert_array_equal(found, want)
    assert mapped > 4 * WIDTH * WIDTH - (1 << 20)


SCRIPT = """
import json, sys
import numpy as np
from pyruntime import InferenceSession, SessionOptions
from tests.test_processes import result, weights_private
options = SessionOptions(share_weights=True)
session = InferenceSession(sys.argv[1], options)
print(json.dumps([result(session).tolist(), weights_private()]), flush=True)
sys.stdin.read()
"""


def opened(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(path)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )


def told(process: subprocess.Popen[str]) -> tuple[np.ndarray, int]:
    assert process.stdout is not None
    found, mapped = json.loads(process.stdout.readline())
    return np.array(found, np.float32), mapped


@shares
def test_unrelated_processes_share_at_once_and_after_each_other(path: Path, own_cache: Path) -> None:
    """Also if the first one is killed, or its note is damaged, or names a file that is another one by now."""
    want = result(InferenceSession(path))
    both = [opened(path), opened(path)]
    for process in both:
        found, mapped = told(process)
        np.testing.assert_array_equal(found, want)
        assert mapped
    assert len({note.name.split(".")[2] for note in (own_cache / "pyruntime/weights").glob("*.*.*.*")}) == 2
    both[0].send_signal(signal.SIGKILL)
    both[0].wait()
    third = InferenceSession(path)
    np.testing.assert_array_equal(result(third), want)
    assert third._native.latest().host.shared_bytes
    for process in both:
        process.kill()
        process.communicate()
    third.release()
    (note,) = (own_cache / "pyruntime/weights").glob("*.*.*.*")
    for text in ("[[0", json.dumps([[0, "/memfd:pyruntime weights 00 (deleted)"]]), "[]", "{}", '[[0, "/dev/null"]]'):
        own = note.with_name(".".join([*note.name.split(".")[:2], str(os.getpid()), "0"]))
        own.write_text(text)
        fourth = InferenceSession(path)
        np.testing.assert_array_equal(result(fourth), want)
        assert not fourth._native.latest().host.shared_bytes
        fourth.release()


@shares
def test_other_weights_are_not_taken(path: Path) -> None:
    """The file has changed; or the Program is another one."""
    first = opened(path)
    told(first)
    model = onnx.load(path)
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(-weight, "w"))
    onnx.save(model, path)
    session = InferenceSession(path)
    want = np.maximum(X @ -weight + weight[3], 0)
    np.testing.assert_allclose(result(session), want, rtol=1e-4, atol=1e-3)
    assert not session._native.latest().host.shared_bytes
    first.kill()
    first.communicate()


@shares
@pytest.mark.parametrize("fault", ["mapping", "locks", "a cache that cannot be written"])
def test_a_session_opens_alone_where_sharing_fails(fault: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want = result(InferenceSession(path))
    first = opened(path)
    told(first)
    options = SessionOptions(share_weights=True)
    if fault == "mapping":
        monkeypatch.setattr(SharedPages, "_map", raises(OutOfMemory, "no memory for weights that runs share"))
    elif fault == "locks":
        monkeypatch.setattr("fcntl.flock", raises(OSError, errno.ENOLCK, "no locks available"))
    else:
        first.kill()
        first.wait()  # so that its number is free
        monkeypatch.setattr(Path, "unlink", raises(OSError, errno.EROFS, "read-only file system"))
        monkeypatch.setattr(Path, "write_text", raises(OSError, errno.EROFS, "read-only file system"))
    session = InferenceSession(path, options)
    np.testing.assert_array_equal(result(session), want)
    assert bool(session._native.latest().host.shared_bytes) is (fault == "locks")
    session.release()
    del session
    gc.collect()
    assert not open_pages()
    first.kill()
    first.communicate()


def open_pages() -> list[str]:
    """The files in RAM that this process has open."""
    found = []
    for file in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{file}"))
    return [link for link in found if "memfd:pyruntime" in link]


def raises(kind: type[Exception], *about: Any) -> Any:
    """A function that raises a new error each time: one that is kept would keep the frames it has passed."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise kind(*about)

    return fail


@shares
def test_notes_of_processes_that_ended_are_removed(path: Path, own_cache: Path) -> None:
    """By a search for any model. Another version of the engine has notes of other names."""
    first = opened(path)
    told(first)
    (note,) = (own_cache / "pyruntime/weights").glob("*.*.*.*")
    first.kill()
    first.communicate()
    assert weights_of_processes.find("another") == [] and not note.exists()
    session = InferenceSession(path)
    program, sources = session._native.latest().program, session._native.latest().sources
    before = weights_of_processes.name_of(program, (), sources)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights_of_processes, "engine_files", lambda: [("other", 1, 2, 3)])
        assert weights_of_processes.name_of(program, (), sources) != before


@forks
def test_a_child_has_a_gpu_of_its_own() -> None:
    """It may not touch the device of its parent, whose driver has threads that the child lacks."""
    pytest.importorskip("wgpu")
    session = InferenceSession(DIGITS, providers=["webgpu"])
    feeds = {"image": np.random.default_rng(0).random((2, 1, 28, 28), np.float32)}
    want = session.run(None, feeds)[0]
    child = os.fork()
    if child == 0:
        good = False
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            good = np.array_equal(session.run(None, feeds)[0], want)
            good &= session.get_providers()[0].startswith("WebGpu") and session.state == "ready"
            good &= np.array_equal(InferenceSession(DIGITS, providers=["webgpu"]).run(None, feeds)[0], want)
            session.release()
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)


def code_of_child(work: Callable[[], Any]) -> int:
    """Of a forked child: 0 if `work` is right. One that hangs is killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


STEP = {
    "image": np.random.default_rng(0).random((4, 1, 28, 28), np.float32),
    "target": np.eye(10, dtype=np.float32)[:4],
}


@forks
def test_a_fork_between_steps_copies_a_training_session() -> None:
    session = TrainingSession(DIGITS, loss={"mse": "probabilities"}, optimizer="adamw")
    session.step(STEP)
    other = pickle.loads(pickle.dumps(session))
    want = [other.step(STEP).loss for _ in range(2)]

    def work() -> None:
        assert [session.step(STEP).loss for _ in range(2)] == want

    assert code_of_child(work) == 0
    work()


@forks
def test_a_fork_in_the_middle_of_a_step_refuses_the_child() -> None:
    """It has some weights from before the step, and some from after it."""
    session = TrainingSession(DIGITS, loss={"mse": "probabilities"})
    session.step(STEP)
    began, ends = threading.Event(), threading.Event()

    def step() -> None:
        with session._turn:
            began.set()
            ends.wait()

    def work() -> None:
        for call in (lambda: session.step(STEP), session.state, session.weights, session.export):
            with pytest.raises(SessionFailed):
                call()

    thread = threading.Thread(target=step)
    thread.start()
    began.wait()
    try:
        assert code_of_child(work) == 0
    finally:
        ends.set()
        thread.join()
    session.step(STEP)


@forks
def test_a_child_has_a_batcher_of_its_own() -> None:
    """Though the parent's thread does not exist there."""
    feeds = {"image": STEP["image"]}
    batcher = Batcher(InferenceSession(DIGITS), wait=0)
    want = batcher.run(None, feeds)[0]

    def work() -> None:
        np.testing.assert_array_equal(batcher.run(None, feeds)[0], want)

    assert code_of_child(work) == 0
    work()
