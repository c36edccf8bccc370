"""Bytes: windows, sources, and malformed input, which may raise InvalidModel and nothing else."""

from __future__ import annotations

import gzip
import io
import os
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from pyruntime.errors import InvalidModel, PyRuntimeError
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph
from pyruntime.onnx.protobuf import MAX_DEPTH, Wire, tags
from pyruntime.onnx.sources import FileSource, MemorySource
from pyruntime.onnx.weight_values import elements

ZOO = Path(__file__).parents[2] / "kit" / "zoo"


def rich_model() -> bytes:
    """A small model with every kind of entry."""
    proto = parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "local" : 1], producer_name: "p", metadata_props: ["k" : "v"]>
        g (float[N, 3] x, bool c, seq(float) s) => (float y) <float[2] w = {1.0, 2.0}, int64[2] i = {1, -300}> {
            k = Constant <value = float[3] {1.0, 2.0, 3.0}, n = [1, 2, 300], z = "text"> ()
            a = local.F <alpha = 2.0> (x)
            y = If (c) <then_branch = t () => (float r) { r = Neg(a) }, else_branch = e () => (float r) { r = Abs(x) }>
        }
        <domain: "local", opset_import: ["" : 13]>
        F <alpha: float = 1.0> (a) => (b) { b = Elu <alpha: float = @alpha> (a) }
    """)
    values = helper.make_tensor("sp", TensorProto.FLOAT16, [2], [1.0, 2.0])
    indices = numpy_helper.from_array(np.array([1, 5]))
    proto.graph.sparse_initializer.add(values=values, indices=indices, dims=[2, 3])
    outside = proto.graph.initializer.add(name="o", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="w.bin")
    return proto.SerializeToString()


RICH = rich_model()


def everything(graph: Graph) -> None:
    """Read all that can be read of a graph."""
    for weight in graph.weights.values():
        if weight.size < 1 << 20:
            elements(weight)


def attempt(data: bytes) -> bool:
    """Whether the bytes read as a model; any other error than ours is a failure of the test."""
    try:
        everything(load(data, open_external=lambda location: MemorySource(bytes(4), location)))
    except PyRuntimeError as error:
        assert str(error)
        return False
    return True


def test_whole() -> None:
    assert attempt(RICH)


def listed(**attrs: object) -> bytes:
    """Lists as protobuf's old version writes them: a tag before each element."""
    graph = helper.make_graph([helper.make_node("Lists", [], ["y"], domain="a", **attrs)], "g", [], [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("a", 1)], ir_version=8).SerializeToString()


NUMBERS = random.Random(0)
LISTS = {
    "small numbers": [n % 120 for n in range(9000)],
    "of two bytes": list(range(20000)),
    "of any size": [NUMBERS.randrange(-(1 << 63), 1 << 63) >> n % 64 for n in range(300_000)],
    "one that is not small": [5] * 20000 + [-1] + [64] * 20000,
    "floats": np.random.default_rng(0).integers(0, 0x7F000000, 500_000).astype("u4").view("f4").tolist(),
    "strings": ["BRANCH_LEQ", "LEAF", ""] * 7000,
    "few": [1, 2, 300],
}


@pytest.mark.parametrize("name", LISTS)
def test_lists(name: str, tmp_path: Path) -> None:
    data = listed(first=1, values=LISTS[name], z=[0.5] * 7000, y="end")
    (tmp_path / "m.onnx").write_bytes(data)
    for model in (data, tmp_path / "m.onnx"):
        (node,) = load(model).nodes
        assert node.attrs == {"first": 1, "values": tuple(LISTS[name]), "z": (0.5,) * 7000, "y": "end"}


def test_lists_that_are_damaged() -> None:
    ones = b"\x40\x01"
    data = listed(values=[1] * 20000)
    at = data.index(ones * 9000)
    large = f"larger than 64 bits at byte {at + 1001}"
    for piece, told in ((b"\x40" + b"\xff" * 9 + b"\x7f", large), (b"\x45abcd" * 600, "wire type 5")):
        new = ones * 500 + piece + ones * ((len(ones) * 9000 - len(piece)) // 2 - 500) + b"\x40" * (len(piece) % 2)
        with pytest.raises(InvalidModel, match=told):
            load(data[:at] + new[: len(ones) * 9000] + data[at + len(ones) * 9000 :])
    rng = random.Random(1)
    for _ in range(200):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] = rng.randrange(256)
        attempt(bytes(damaged))


def test_cut_anywhere() -> None:
    assert sum(attempt(RICH[:end]) for end in range(len(RICH))) < 10  # cuts between two of the last fields are models


def test_bytes_changed() -> None:
    rng = random.Random(1)
    for _ in range(4000):
        data = bytearray(RICH)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        attempt(bytes(data))


def test_bytes_moved() -> None:
    rng = random.Random(2)
    for _ in range(1000):
        a, b, c = sorted(rng.randrange(len(RICH)) for _ in range(3))
        attempt(RICH[:a] + RICH[b:c] + RICH[a:b] + RICH[c:])
        attempt(RICH[:a] + rng.randbytes(rng.randint(1, 8)) + RICH[a:])
        attempt(rng.randbytes(rng.randint(0, 64)))


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


@pytest.mark.parametrize(("message", "data"), [
    ("not an ONNX model", b"\x08\x0a"),
    ("it starts with the bytes 0e 00", b"\x0e\x00"),
    ("byte 2 begins a field of wire type 3", b"\x08\x0a\x3b\x3c"),
    ("byte 2 begins a field of wire type 6", b"\x08\x0a\x0e\x00"),
    ("byte 2 begins a field of number 0", b"\x08\x0a\x02\x00"),
    ("byte 2 begins a field of number 536870912", b"\x08\x0a\x80\x80\x80\x80\x10\x00"),
    ("longer than 10 bytes at byte 1", b"\x08" + b"\xff" * 11),
    ("larger than 64 bits at byte 1", b"\x08" + b"\xff" * 9 + b"\x7f"),
    ("field 7 at byte 0 is longer than its message, to byte 3", b"\x3a\x05\x00"),
    ("is longer than its message", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ("cut off inside the field at byte 2", b"\x08\x0a\x3a"),
    ("field 7 has wire type 0", b"\x08\x0a\x38\x01"),
    ("field 1 has wire type 2", b"\x12\x01a\x0a\x01\x01"),
    ("a name is not UTF-8", b"\x08\x0a" + field(7, field(2, b"\xff"))),
])  # fmt: skip
def test_wire_faults(message: str, data: bytes) -> None:
    with pytest.raises(InvalidModel, match=message):
        load(data)


def zipped(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, b"0")
    return out.getvalue()


@pytest.mark.parametrize(("told", "data"), [
    (": the file is empty", b""),
    ('a web page or XML (it starts with "<!doctype html><title>40") (check the address',
     b"\n<!doctype html><title>404</title>"),
    ('a text file (it starts with "# pyruntime ONNX inferen")', (ZOO.parents[1] / "README.md").read_bytes()),
    ('a text file (it starts with "{"a": 1}")', b'\xef\xbb\xbf{"a": 1}'),
    ('a text file (it starts with "Über")', "Über".encode("utf-16")),
    ("a Git LFS pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
    ("a zip archive (it starts with the bytes 50 4b 03 04", zipped("model.onnx")),
    ("a PyTorch checkpoint", zipped("archive/data.pkl", "archive/data/0")),
    ("compressed with gzip", gzip.compress(RICH)),
    ("a safetensors file, which holds weights", b"\x08\0\0\0\0\0\0\0" + b'{"a":{}}'),
    ("a TensorFlow Lite model", b"\x1c\0\0\0TFL3" + bytes(30)),
    ("an HDF5 file", b"\x89HDF\r\n\x1a\n" + bytes(30)),
    (": it starts with the bytes 00 00 00 00 00 00 00 00", bytes(30)),
])  # fmt: skip
def test_other_files_are_told(told: str, data: bytes) -> None:
    with pytest.raises(InvalidModel, match="^this is not an ONNX model.*" + re.escape(told)):
        load(data)


def test_models_that_are_neither_path_nor_bytes() -> None:
    with pytest.raises(TypeError, match="path or bytes, not int"):
        load(3)  # type: ignore[arg-type]


def test_unknown_fields_are_skipped() -> None:
    future = varint(200 << 3) + b"\x01" + field(201, b"abc") + varint(202 << 3 | 5) + b"1234" + varint(203 << 3 | 1)
    assert attempt(RICH + future + b"12345678")


def nested_types(depth: int) -> bytes:
    kind = field(1, b"\x08\x01")
    for _ in range(depth):
        kind = field(4, field(1, kind))
    return field(11, field(1, b"x") + field(2, kind))


def nested_graphs(depth: int) -> bytes:
    graph = field(2, b"g")
    for _ in range(depth):
        attribute = field(1, b"g") + field(6, graph) + varint(20 << 3) + b"\x05"
        graph = field(1, field(4, b"If") + field(5, attribute))
    return graph


@pytest.mark.parametrize("make", [nested_types, nested_graphs])
def test_depth(make: Callable[[int], bytes]) -> None:
    def model(depth: int) -> bytes:
        return b"\x08\x0a" + field(8, b"\x10\x15") + field(7, make(depth))

    load(model(30))
    for depth in (MAX_DEPTH, 1000):
        with pytest.raises(InvalidModel, match="nested deeper"):
            load(model(depth))


# Windows and sources


class Counting:
    """A source that may not be read whole, as a page gives one."""

    name = ""

    def __init__(self, data: bytes) -> None:
        self.data, self.size, self.reads, self.total = data, len(data), 0, 0

    def read(self, offset: int, size: int) -> bytes:
        assert 0 <= offset and offset + size <= self.size
        self.reads += 1
        self.total += size
        return self.data[offset : offset + size]


def shape(graph: Graph) -> tuple[object, ...]:
    places = [(w.name, w.dtype, w.shape, w.offset, w.size) for w in graph.weights.values()]
    nodes = [(n.op, n.name, n.inputs, n.outputs, list(n.attrs)) for n in graph.nodes]
    return graph.inputs, graph.outputs, nodes, places, graph.values


def test_large_weights_are_skipped() -> None:
    proto = onnx.load(ZOO / "resnet50.onnx")
    for tensor in proto.graph.initializer:
        count = int(np.prod(tensor.dims))
        tensor.raw_data = bytes(4 * count if tensor.data_type == TensorProto.FLOAT else 8 * count)
    proto.graph.node.add(op_type="Constant", output=["c"]).attribute.append(
        helper.make_attribute("value", helper.make_tensor("c", TensorProto.FLOAT, [1 << 20], bytes(1 << 22), raw=True))
    )
    data = proto.SerializeToString()
    source = Counting(data)
    graph = load(source)
    assert source.size > 100e6
    assert source.total < 0.02 * source.size and source.reads < 300
    assert shape(graph) == shape(load(data))


@pytest.mark.parametrize("step", [1, 7, 100, 4096])
def test_windows_do_not_matter(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (ZOO / "llama_mini.qdq.onnx").read_bytes()
    want = shape(load(data, require_data=False))
    for name, value in (("_WHOLE", 2 * step), ("_FIRST", step), ("_LARGEST", step)):
        monkeypatch.setattr(f"pyruntime.onnx.protobuf.{name}", value)
    source = Counting(data)
    assert shape(load(source, require_data=False)) == want
    assert source.reads > 10


def test_every_kind_of_source(tmp_path: Path) -> None:
    path = ZOO / "unet_resize.onnx"
    data = path.read_bytes()
    want = shape(load(data, require_data=False))
    for given in (bytearray(data), memoryview(data), memoryview(bytearray(data)), path, str(path), FileSource(path)):
        assert shape(load(given, require_data=False)) == want
    empty = tmp_path / "empty.onnx"
    empty.write_bytes(b"")
    with pytest.raises(InvalidModel, match="not an ONNX model"):
        load(empty)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.onnx")


def test_a_source_that_lies_about_its_size() -> None:
    source = Counting(RICH)
    source.size += 100
    source.read = lambda offset, size: RICH[offset : offset + size]  # type: ignore[method-assign]
    with pytest.raises(InvalidModel, match="the file is cut off at byte"):
        load(source)


def test_file_source_without_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no address space")

    monkeypatch.setattr("mmap.mmap", refuse)
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    assert FileSource(path).read(3, 4) == b"3456"


def test_file_source_beyond_its_end(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    assert FileSource(path).read(8, 1 << 21) == b"89" and FileSource(path).read(1 << 20, 1 << 21) == b""


CHANGES = {
    "written": lambda path: path.write_bytes(b"9876543210"),
    "cut off": lambda path: os.truncate(path, 3),
    "longer": lambda path: path.write_bytes(b"0123456789a"),
    "replaced": lambda path: os.replace(shutil.copy(path, path.with_suffix(".new")), path),
    "removed": os.remove,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mapped", [True, False])
def test_a_file_that_changes(change: str, mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapped file that was replaced or removed still has its old bytes; any other change is refused."""
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    if not mapped:
        monkeypatch.setattr("mmap.mmap", Mock(side_effect=OSError))
    os.utime(path, (1e9, 1e9))
    source = FileSource(path)
    CHANGES[change](path)
    if mapped and change in ("replaced", "removed"):
        assert source.read(3, 4) == b"3456"
    else:
        with pytest.raises(InvalidModel, match=r"has changed since it was opened|cannot be read: .*No such file"):
            source.read(3, 4)


def test_packed_varints_cut_off() -> None:
    wire = Wire(MemorySource(b"\x0a\x02\x80\x80"))
    with pytest.raises(InvalidModel, match="cut off at byte 4"):
        wire.ints(wire.gather(0, 4, tags(length="1"))[1])
