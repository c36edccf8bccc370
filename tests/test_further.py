"""Weights in further memories: small weights go there, as if the first memory were full, and results stay the same."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

from kit import zoo
from kit.models import MODELS
from kit.small_models import branches_and_rounds, products
from pyruntime import InferenceSession, InvalidModel, OutOfMemory, SessionOptions, inspect
from pyruntime.codegen.provider import Invocation
from pyruntime.emit import further_memories as further
from pyruntime.program.format import Program
from pyruntime.providers.wasm import wasmtime_host
from pyruntime.providers.wasm.code_writer import WasmCodeWriter
from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.printer.memory_variants import BLOCK, NUMBER, Untraceable, Variants

GIB = 1 << 30
GIVEN = (BLOCK, NUMBER, NUMBER, NUMBER)  # to a kernel
# convolutions of all kinds, integers, recurrences, a decoder with few-bit weights, embeddings
NAMES = ["mobilenet_v2.qdq", "superres", "lstm_tagger", "gpt2_tiny", "llama_mini.nb4", "minilm"]


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The first memory has no room for weights, further ones have room for four megabytes each."""
    monkeypatch.setattr(further, "ROOM", 4 * GIB)
    monkeypatch.setattr(further, "SMALL", 0)
    monkeypatch.setattr(further, "LARGEST", 4 << 20)
    return monkeypatch


def opened(model: object, threads: int = 1, **more: object) -> InferenceSession:
    return InferenceSession(model, SessionOptions(intra_op_num_threads=threads, **more))


def memories(session: InferenceSession) -> list[int]:
    return session._native.latest().header.get("memories", [])


@pytest.mark.parametrize("name", [*NAMES, "efficientnet_b0", "unet_resize", "yolo_nms", "wav2vec2_mini"])
def test_every_address_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace finds every address of every kernel, and no kernel compares addresses as signed numbers."""
    told: dict[str, int] = {}

    def probe(writer: WasmCodeWriter, calls: Sequence[Invocation]) -> None:
        for c in calls:
            f = next(f for f in writer.module.functions if f.name == c.function)
            trace = Variants(writer.module).trace(f, GIVEN, tuple(range(1, len(c.tensors) + 1)))
            told[c.function] = len(trace.accesses) + len(trace.calls)

    monkeypatch.setattr(WasmCodeWriter, "_use_memories", probe)
    assert not inspect(MODELS[name].path())["refused"]
    assert len(told) > 5 and all(told.values())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_models(name: str, threads: int, tight: pytest.MonkeyPatch) -> None:
    model = MODELS[name]
    session = opened(model.path(), threads)
    model.check(session.run(None, model.feeds()))
    model.check(session.run(None, model.feeds()))
    buffers = session._native.latest().header["buffers"]
    apart = {n for n, b in enumerate(buffers) if "further" in b}
    constants = {c["buffer"] for c in session._native.latest().header["constants"]}
    assert len(memories(session)) == len({buffers[n]["further"][0] for n in apart})
    assert apart - constants  # made by `init`, there
    assert session.memory().weights > 0.9 * model.path().stat().st_size or name in ("superres", "lstm_tagger")


@pytest.mark.parametrize("first", [2 * GIB - (1 << 20), 4 * GIB - (12 << 20)], ids=["2 GiB", "4 GiB"])
@pytest.mark.parametrize("threads", [1, 2])
def test_addresses_are_not_signed(first: int, threads: int, tight: pytest.MonkeyPatch) -> None:
    """Weights across 2 GiB and up to 4 GiB work. (Untouched pages take no memory.)"""
    tight.setattr(further, "FIRST", first)
    tight.setattr(further, "LARGEST", 11 << 20)
    for name in ("llama_mini.nb4", "mobilenet_v2"):
        model = MODELS[name]
        session = opened(model.path(), threads)
        model.check(session.run(None, model.feeds()))
        assert all(first < size <= 4 * GIB for size in memories(session))


def test_bodies_and_what_the_executor_looks_at(tight: pytest.MonkeyPatch) -> None:
    """Branches and loop bodies read weights there; values that they return, carry or test are in the first memory."""
    model = branches_and_rounds().SerializeToString()
    session = opened(model)
    assert memories(session)
    for flag in (True, False):
        feeds = {"x": np.arange(32, dtype=np.float32).reshape(2, 16) / 16, "flag": np.array(flag)}
        for ours, theirs in zip(session.run(None, feeds), zoo.oracle(model, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_files_over_4_gib(tmp_path: Path) -> None:
    """Weights at offset 5 GiB of a sparse file."""
    made = products(3, 16)
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((16, 16), np.float32) for _ in range(3)]
    with (tmp_path / "m.bin").open("wb") as file:
        for n, weight in enumerate(weights):
            offset = n * (5 * GIB // 2) + 64
            place = made.graph.initializer[n]
            place.ClearField("raw_data")
            place.data_location = onnx.TensorProto.EXTERNAL
            for key, text in (("location", "m.bin"), ("offset", str(offset)), ("length", "1024")):
                place.external_data.add(key=key, value=text)
            file.seek(offset)
            file.write(weight.tobytes())
    onnx.save(made, tmp_path / "m.onnx")
    x = rng.standard_normal((2, 16), np.float32)
    (y,) = InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})
    np.testing.assert_allclose(y, x @ weights[0] @ weights[1] @ weights[2], rtol=1e-4, atol=1e-3)
    assert inspect(str(tmp_path / "m.onnx"))["size"] > 5 * GIB


def test_a_model_over_4_gib_is_told_of(tmp_path: Path) -> None:
    """20 GB of weights that nobody loads: in which memories they would be, and that there is not enough."""
    made = products(3, 16)
    for n, place in enumerate(made.graph.initializer[:3]):
        place.ClearField("raw_data")
        place.dims[:] = [40000, 40000]
        place.data_location = onnx.TensorProto.EXTERNAL
        for key, text in (("location", "m.bin"), ("offset", str(6_400_000_000 * n)), ("length", "6400000000")):
            place.external_data.add(key=key, value=text)
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[1].dim_value = 40000
    (tmp_path / "m.bin").touch()
    os.truncate(tmp_path / "m.bin", 3 * 6_400_000_000)
    onnx.save(made, tmp_path / "m.onnx")
    told = inspect(str(tmp_path / "m.onnx"))
    assert told["memory"]["linear"] >= 3 * 6_400_000_000 and not told["fits"]["here"]


def test_programs_in_files(tight: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = MODELS["gpt2_tiny"]
    data = opened(model.path()).export(weights=True)
    (tmp_path / "m.pyrt").write_bytes(data)
    assert inspect(str(tmp_path / "m.pyrt"))["memory"]["further"] > model.path().stat().st_size / 2
    tight.undo()
    again = InferenceSession(tmp_path / "m.pyrt")
    model.check(again.run(None, model.feeds()))
    assert memories(again)
    again.trim()
    model.check(again.run(None, model.feeds()))


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ([1, 1 << 40], "does not fit its memory"),
        ([9, 65536], "does not fit its memory"),
        ("memory", "is in two memories"),
        ("output", "is in another memory"),
    ],
)
def test_damaged_files(place: object, told: str, tight: pytest.MonkeyPatch) -> None:
    found = Program.from_bytes(opened(MODELS["gpt2_tiny"].path()).export(weights=True))
    header = json.loads(json.dumps(found.header))
    number = next(n for n, b in enumerate(header["buffers"]) if "further" in b)
    if place == "memory":
        header["buffers"][number]["memory"] = "webgpu"
    elif place == "output":
        header["outputs"][0]["value"]["buffer"] = number
    else:
        header["buffers"][number]["further"] = place
    with pytest.raises(InvalidModel, match=told):
        InferenceSession(Program(header, found.blob).to_bytes())


def test_runs_side_by_side(tight: pytest.MonkeyPatch) -> None:
    model = MODELS["minilm"]
    session = opened(model.path())
    alone = session.memory()
    with ThreadPoolExecutor(4) as pool:
        for outputs in pool.map(lambda _: session.run(None, model.feeds()), range(8)):
            model.check(outputs)
    assert session.memory().weights == alone.weights
    assert session.memory().arena < 2 * alone.arena


def test_limits(tight: pytest.MonkeyPatch) -> None:
    path = MODELS["minilm"].path()
    told = inspect(path)["memory"]
    assert told["further"] == sum(memories(opened(path))) < told["linear"]
    limit = SessionOptions(memory_limit=told["further"] - 1)
    assert not inspect(path, limit)["fits"]["here"]
    with pytest.raises(OutOfMemory, match=f"bytes of memory are needed, memory_limit is {told['further'] - 1}"):
        opened(path, memory_limit=told["further"] - 1)
    with pytest.raises(OutOfMemory, match="bytes of memory are needed"):
        opened(path, memory_limit=told["further"] + (1 << 16))
    MODELS["minilm"].check(opened(path, memory_limit=2 * told["linear"]).run(None, MODELS["minilm"].feeds()))


def test_where_the_engine_has_one_memory(tight: pytest.MonkeyPatch) -> None:
    tight.setattr(wasmtime_host, "_has_memories", lambda: False)
    assert not memories(opened(MODELS["minilm"].path()))


def test_what_goes() -> None:
    """If all weights fit, none move; otherwise the largest do, each within one memory."""
    found = further.FurtherMemories()
    found.fill([(1, 2 * GIB), (2, GIB)], 3 * GIB)
    assert not found.places and not found.memories
    found.fill([(1, GIB), (2, 3 * GIB), (3, 1000), (4, 2 * GIB), (5, 5 * GIB)], 6 * GIB + 1000)
    assert set(found.places) == {2, 4}  # 5 fits nowhere
    assert found.places[2][0] != found.places[4][0]
    assert all(size <= 4 * GIB - further.PADDING for size in found.memories)
    found.fill([(6, GIB - 64), (7, GIB)], 0)
    sizes = {2: 3 * GIB, 4: 2 * GIB, 6: GIB - 64, 7: GIB}
    spans = [(memory, address, sizes[uid]) for uid, (memory, address) in found.places.items()]
    for memory, address, size in spans:
        assert address % 64 == 0 and further.FIRST <= address <= found.memories[memory - 1] - size - further.PADDING
        assert not any(m == memory and address < a < address + size for m, a, _ in spans)


def kernel(module: Module) -> tuple[Module, int, int]:
    """Begin a kernel; return its function and the locals of its two operands."""
    f = module.function("k", ["i32"] * 4)
    a, b = f.locals("i32", 2)
    f.emit(0).mem("i32.load", 0).set(a).emit(0).mem("i32.load", 4).set(b)
    return f, a, b


@pytest.mark.parametrize(
    "write",
    [
        lambda f, a, b: f.emit(b, a).mem("i32.store"),  # who reads it there does not know
        lambda f, a, b: f.emit(a, b, 1, "select").mem("i32.load").emit("drop"),
        lambda f, a, b: f.emit(a, b, "i32.and").mem("i32.load").emit("drop"),
        lambda f, a, b: f.emit(a, b, "i32.lt_s", "drop"),
        lambda f, a, b: f.emit(0, 1, "i32.add").mem("i32.load").emit("drop"),
        lambda f, a, b: f.emit(a, b).i32(4).emit("memory.copy"),
        lambda f, a, b: f.emit(0).mem("i64.load", 0).emit("drop"),  # two words at once
        lambda f, a, b: f.emit(0).mem("i32.load8_u", 3).emit("drop"),
    ],
)
def test_what_cannot_be_told_is_refused(write: object) -> None:
    module = Module()
    f, a, b = kernel(module)
    write(f, a, b)
    with pytest.raises(Untraceable):
        Variants(module).kernel(f, [1, 0])


def test_a_pointer_that_changes_its_memory_in_a_loop() -> None:
    module = Module()
    f, a, b = kernel(module)
    with f.until(1, 2):
        f.emit(a).mem("f32.load").emit("drop").emit(b).set(a)
    with pytest.raises(Untraceable):
        Variants(module).kernel(f, [1, 2])
    same = Variants(module).kernel(f, [2, 2])
    assert bytes(same.code).count(b"\x2a\x42\x02\x00") == 1  # f32.load of memory 2
