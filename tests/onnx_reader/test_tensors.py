"""Tensors: every element type as raw, typed and external data, sparse tensors, against onnx.numpy_helper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from pyruntime import InferenceSession
from pyruntime.errors import InvalidModel, OutOfMemory
from pyruntime.ir import dtype as dt
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Weight
from pyruntime.onnx.sources import MEMORY, MemorySource, beside
from pyruntime.onnx.weight_values import elements, pack, small_floats, unpack, widen

TYPES = [d for d in dt.ALL if d is not dt.STRING]
SHAPES = [(), (1,), (3,), (0,), (2, 5), (4, 3, 2)]


def model(*tensors: T, sparse: tuple[onnx.SparseTensorProto, ...] = (), ir: int = 14) -> onnx.ModelProto:
    graph = onnx.GraphProto(name="g", initializer=tensors, sparse_initializer=sparse)
    return onnx.ModelProto(ir_version=ir, graph=graph, opset_import=[onnx.OperatorSetIdProto(version=21)])


def read(tensor: T, **options: object) -> Weight:
    (weight,) = load(model(tensor).SerializeToString(), **options).weights.values()  # type: ignore[arg-type]
    return weight


def random_raw(d: dt.DType, count: int, seed: int = 7) -> bytes:
    """Random bit patterns, NaN among them; the padding bits of a packed type are zero."""
    rng = np.random.default_rng(seed)
    if d is dt.BOOL:
        return rng.integers(0, 2, count, np.uint8).tobytes()
    if d.bits < 8:
        return pack(rng.integers(0, 1 << d.bits, count, np.uint8).tobytes(), d)
    return rng.bytes(count * d.size)


def raw_tensor(d: dt.DType, shape: tuple[int, ...]) -> T:
    return T(name="w", data_type=d.code, dims=shape, raw_data=random_raw(d, int(np.prod(shape))))


def typed_tensor(raw: T) -> T:
    """The same tensor with its elements in the typed field of its element type."""
    d, data = dt.BY_CODE[raw.data_type], raw.raw_data
    tensor = T(name=raw.name, data_type=raw.data_type, dims=raw.dims)
    if d in (dt.F32, dt.C64):
        tensor.float_data.extend(np.frombuffer(data, np.float32))
    elif d in (dt.F64, dt.C128):
        tensor.double_data.extend(np.frombuffer(data, np.float64))
    elif d is dt.I64:
        tensor.int64_data.extend(np.frombuffer(data, np.int64).tolist())
    elif d in (dt.U32, dt.U64):
        tensor.uint64_data.extend(np.frombuffer(data, np.dtype(d.name)).tolist())
    elif d.bits == 6:
        tensor.int32_data.extend(widen(data, d, int(np.prod(raw.dims))))
    else:
        kind = {1: np.int8 if d.is_int and d.kind == "i" else np.uint8, 2: np.uint16, 4: np.int32}[d.size]
        tensor.int32_data.extend(np.frombuffer(data, np.int16 if d is dt.I16 else kind).tolist())
    return tensor


def unpacked(tensor: T) -> bytes:
    """The tensor's bytes with packed repeated fields written one tag an element, as proto2 writers did."""
    plain = T()
    plain.CopyFrom(tensor)
    wire: list[bytes] = []
    for name, number in (("float_data", 4), ("int32_data", 5), ("int64_data", 7), ("double_data", 10),
                         ("uint64_data", 11), ("dims", 1)):  # fmt: skip
        for value in getattr(plain, name):
            if name in ("float_data", "double_data"):
                kind, code = (np.float32, 5) if name == "float_data" else (np.float64, 1)
                wire.append(bytes([number << 3 | code]) + kind(value).tobytes())
            else:
                wire.append(bytes([number << 3]) + varint(value))
        plain.ClearField(name)  # type: ignore[arg-type]
    return plain.SerializeToString() + b"".join(wire)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def same(tensor: T, weight: Weight) -> None:
    want = numpy_helper.to_array(tensor)
    d = weight.dtype
    got = elements(weight)
    assert (weight.shape, len(got)) == (want.shape, want.size)
    if d.bits < 8 and d.is_int:
        assert [int(x) for x in want.ravel()] == got
        assert np.array(got, np.int8).tobytes() == unpack(weight)
    elif d.bits < 8:
        assert want.tobytes() == unpack(weight)
    else:
        assert want.tobytes() == unpack(weight)
    if d.is_float and d.bits < 16:
        got = [small_floats(d)[code] for code in got]
    wide = want.ravel() if d.kind in "iub" and d.bits >= 8 else want.ravel().astype(complex if d.kind == "c" else float)
    np.testing.assert_array_equal(np.array(got, dtype=wide.dtype), wide)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("d", TYPES, ids=repr)
def test_raw_typed_unpacked(d: dt.DType, shape: tuple[int, ...]) -> None:
    raw = raw_tensor(d, shape)
    same(raw, read(raw))
    typed = typed_tensor(raw)
    same(typed, read(typed))
    assert unpack(read(typed)) == unpack(read(raw))
    proto = model(T(name="w", data_type=1, dims=[0])).SerializeToString()
    small, large = T(name="w", data_type=1, dims=[0]).SerializeToString(), unpacked(typed)
    graph = b"\x12\x01g\x2a" + varint(len(large)) + large
    assert small in proto
    body = b"\x08\x0e\x42\x02\x10\x15\x3a" + varint(len(graph)) + graph
    (weight,) = load(body).weights.values()
    same(typed, weight)


@pytest.mark.parametrize("d", TYPES, ids=repr)
def test_located_and_not_copied(d: dt.DType) -> None:
    tensor = raw_tensor(d, (4, 3, 2))
    data = model(tensor).SerializeToString()
    (weight,) = load(data).weights.values()
    assert data[weight.offset : weight.offset + weight.size] == tensor.raw_data
    assert weight.source is not None and weight.source.name == ""


def test_packed_floats_are_located() -> None:
    floats = T(name="w", data_type=T.FLOAT, dims=[2], float_data=[1.5, -2.0])
    for tensor in (floats, T(name="w", data_type=T.DOUBLE, dims=[2], double_data=[1.5, -2.0])):
        weight = read(tensor)
        assert weight.source is not None and weight.source.name == "" and elements(weight) == [1.5, -2.0]
    weight = read(T(name="w", data_type=T.INT64, dims=[2], int64_data=[1, -(1 << 62)]))
    assert weight.source is not None and weight.source.name == MEMORY and elements(weight) == [1, -(1 << 62)]


def test_every_small_float_against_ml_dtypes() -> None:
    for d in (dt.F8E4M3FN, dt.F8E4M3FNUZ, dt.F8E5M2, dt.F8E5M2FNUZ, dt.F8E8M0, dt.F4E2M1, dt.F6E2M3, dt.F6E3M2):
        kind = helper.tensor_dtype_to_np_dtype(d.code)
        codes = np.arange(1 << d.bits, dtype=np.uint8)
        want = codes.view(kind).astype(np.float64)
        np.testing.assert_array_equal(np.array(small_floats(d)[: len(codes)]), want)
        assert np.array_equal(np.signbit(small_floats(d)[: len(codes)]), np.signbit(want)) or np.isnan(want).any()


@pytest.mark.parametrize("count", range(18))
@pytest.mark.parametrize("d", [d for d in TYPES if d.bits < 8], ids=repr)
def test_pack_inverts_widen(d: dt.DType, count: int) -> None:
    packed = random_raw(d, count, seed=count)
    assert len(packed) == (count * d.bits + 7) // 8
    assert pack(widen(packed, d, count), d) == packed


def test_strings() -> None:
    tensor = T(name="w", data_type=T.STRING, dims=[2, 2], string_data=[b"a", b"", "é".encode(), b"\xff"])
    assert elements(read(tensor)) == [b"a", b"", "é".encode(), b"\xff"]
    tensor.string_data.pop()
    with pytest.raises(InvalidModel, match="3 strings"):
        read(tensor)


def refusals() -> Iterator[tuple[str, T]]:
    yield "needs 8 bytes, it holds 4", T(name="w", data_type=1, dims=[2], raw_data=b"1234")
    yield "needs 4 bytes, it holds 8", T(name="w", data_type=1, dims=[1], raw_data=b"12345678")
    yield "needs 8 bytes, it holds 0", T(name="w", data_type=1, dims=[2])
    yield "needs 8 bytes, it holds 0", T(name="w", data_type=1, dims=[2], int64_data=[1, 2])
    yield "unknown element type 99", T(name="w", data_type=99, dims=[2])
    yield "unknown element type 0", T(name="w", dims=[2])
    yield "impossible shape", T(name="w", data_type=1, dims=[-1], raw_data=b"1234")
    yield "impossible shape", T(name="w", data_type=1, dims=[1] * 65, raw_data=b"1234")
    yield "segment", T(name="w", data_type=1, dims=[1], raw_data=b"1234", segment=T.Segment(begin=0, end=1))
    yield "has no name", T(data_type=1, dims=[1], raw_data=b"1234")


@pytest.mark.parametrize(("message", "tensor"), list(refusals()))
def test_refused(message: str, tensor: T) -> None:
    with pytest.raises(InvalidModel, match=message):
        read(tensor)


def test_skeleton() -> None:
    weight = read(T(name="w", data_type=1, dims=[2]), require_data=False)
    assert (weight.source, weight.shape) == (None, (2,))
    with pytest.raises(InvalidModel, match="holds no data"):
        elements(weight)


# External data


def outside(**keys: object) -> T:
    tensor = T(name="w", data_type=T.FLOAT, dims=[6], data_location=T.EXTERNAL)
    for key, value in keys.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def test_external_beside_a_file(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/w.bin").write_bytes(b"x" * 16 + values.tobytes())
    path = tmp_path / "m.onnx"
    for tensor in (outside(location="sub/w.bin", offset=16, length=24), outside(location="sub/w.bin", offset=16)):
        path.write_bytes(model(tensor).SerializeToString())
        for given in (path, str(path)):
            weight = load(given).weights["w"]
            assert elements(weight) == values.tolist()
            assert weight.source is not None and (weight.source.name, weight.offset) == ("sub/w.bin", 16)
    data = path.read_bytes()
    assert elements(load(data, open_external=beside(path)).weights["w"]) == values.tolist()


@pytest.mark.parametrize(("message", "keys"), [
    ("not a relative path", {"location": "../w.bin"}), ("not a relative path", {"location": "/w.bin"}),
    ("not a relative path", {"location": "a/../../w.bin"}), ("not a relative path", {"location": "..\\w.bin"}),
    ("not a relative path", {"location": "C:\\w.bin"}), ("not a relative path", {"location": ""}),
    ("cannot be opened", {"location": "missing.bin"}), ("no location", {"offset": 0}),
    ("no location", {"location": "w.bin", "offset": -1}), ("no integer", {"location": "w.bin", "offset": "x"}),
    ("needs 24 bytes, not 20", {"location": "w.bin", "length": 20}),
    ("ends at byte 24", {"location": "w.bin", "offset": 4}),
])  # fmt: skip
def test_external_refused(tmp_path: Path, message: str, keys: dict[str, object]) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(24))
    path = tmp_path / "m.onnx"
    path.write_bytes(model(outside(**keys)).SerializeToString())
    with pytest.raises(InvalidModel, match=message):
        load(path)


def test_external_needs_an_opener() -> None:
    data = model(outside(location="w.bin")).SerializeToString()
    with pytest.raises(InvalidModel, match="open_external"):
        load(data)
    sources = {"w.bin": MemorySource(bytes(24), "w.bin")}
    assert elements(load(data, open_external=sources.__getitem__).weights["w"]) == [0.0] * 6
    with pytest.raises(InvalidModel, match="cannot be opened"):
        load(data, open_external={}.__getitem__)


# Sparse tensors


def sparse(shape: tuple[int, ...], places: list[list[int]] | list[int], d: dt.DType = dt.F32) -> onnx.SparseTensorProto:
    values = T(name="s", data_type=d.code, dims=[len(places)], raw_data=random_raw(d, len(places)))
    indices = numpy_helper.from_array(np.array(places, np.int64))
    return onnx.SparseTensorProto(values=values, indices=indices, dims=shape)


def read_sparse(proto: onnx.SparseTensorProto) -> Weight:
    graph: Graph = load(model(sparse=(proto,)).SerializeToString())
    return graph.weights["s"]


@pytest.mark.parametrize("d", TYPES, ids=repr)
def test_sparse(d: dt.DType) -> None:
    flat = sparse((3, 5), [1, 4, 13], d)
    by_axis = sparse((3, 5), [[0, 1], [0, 4], [2, 3]], d)
    raw = widen(flat.values.raw_data, d, 3)
    want = bytearray(15 * d.size)
    for i, place in enumerate((1, 4, 13)):
        want[place * d.size : (place + 1) * d.size] = raw[i * d.size : (i + 1) * d.size]
    codes = unpack(Weight("", d, (3,), MemorySource(flat.values.raw_data), 0, len(flat.values.raw_data)))
    for proto in (flat, by_axis):
        weight = read_sparse(proto)
        assert weight.shape == (3, 5) and weight.size == (15 * d.bits + 7) // 8
        got = unpack(weight)
        assert [got[p * d.size : (p + 1) * d.size] for p in (1, 4, 13)] == [
            codes[i * d.size : (i + 1) * d.size] for i in range(3)
        ]
        assert sum(got[p] for p in range(len(got)) if p // d.size not in (1, 4, 13)) == 0


@pytest.mark.parametrize(("message", "shape", "places"), [
    ("outside", (3, 5), [15]), ("outside", (3, 5), [-1]), ("outside", (3, 5), [[0, 5]]), ("outside", (3, 5), [[-1, 0]]),
    ("ascending", (3, 5), [4, 4]), ("ascending", (3, 5), [[1, 0], [0, 1]]), ("indices must be", (3, 5), [[0, 1, 2]]),
])  # fmt: skip
def test_sparse_refused(message: str, shape: tuple[int, ...], places: list[int]) -> None:
    with pytest.raises(InvalidModel, match=message):
        read_sparse(sparse(shape, places))


def test_sparse_claims_no_memory_until_read() -> None:
    assert read_sparse(sparse((1 << 20, 1 << 20), [0, 5])).size == 1 << 42
    with pytest.raises(OutOfMemory, match="takes"):
        elements(read_sparse(sparse((1 << 40, 1 << 20), [0, 5])))


def test_bools_in_int32_data_are_those_that_are_not_0() -> None:
    """As in ONNX Runtime: the reference cuts 256 to its low byte, 0."""
    tensor = T(name="w", data_type=T.BOOL, dims=[4], int32_data=[0, 1, 2, 256])
    outputs = [onnx.ValueInfoProto(name="y")]
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], outputs, [tensor])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    want = onnxruntime.InferenceSession(data).run(None, {})[0].view(np.uint8).tolist()
    assert list(unpack(read(tensor))) == want == [0, 1, 1, 1]


@pytest.mark.parametrize("external", [False, True])
def test_bools_of_other_bytes_are_true(external: bool, tmp_path: Path) -> None:
    tensor = T(name="w", data_type=T.BOOL, dims=[4], raw_data=bytes([0, 1, 2, 255]))
    if external:
        (tmp_path / "w.bin").write_bytes(b"xyz" + tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = T.EXTERNAL
        for key, value in {"location": "w.bin", "offset": "3", "length": "4"}.items():
            tensor.external_data.add(key=key, value=value)
    nodes = [helper.make_node("Cast", ["w"], ["y"], to=T.INT64), helper.make_node("Identity", ["w"], ["z"])]
    outputs = [onnx.ValueInfoProto(name=name) for name in "yz"]
    graph = helper.make_graph(nodes, "g", [], outputs, [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    sessions = (InferenceSession(tmp_path / "m.onnx"), onnxruntime.InferenceSession(tmp_path / "m.onnx"))
    ours, theirs = ([x.astype(np.int64).tolist() for x in session.run(None, {})] for session in sessions)
    assert ours == theirs == [[0, 1, 1, 1]] * 2
    assert sessions[0].run(["z"], {})[0].view(np.uint8).tolist() == [0, 1, 1, 1]
