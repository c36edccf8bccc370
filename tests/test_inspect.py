"""`inspect`: what is told of a model before it is loaded, and how little of it is fetched for that."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kit import small_models, zoo
from kit.gpu import GPU
from pyruntime import InferenceSession, InvalidModel, LimitExceeded, SessionOptions, inspect
from pyruntime.cli import main
from pyruntime.cli.serve import Handler, Part, Server
from pyruntime.errors import InvalidInput, ModelNotFound
from pyruntime.native.tools import inspection, url_source
from pyruntime.onnx.sources import MemorySource

LAYERS, WIDTH = 8, 1024  # 32 MiB


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 32 MiB with its weights inside, one with them outside, small ones, and what is none."""
    made = tmp_path_factory.mktemp("inspected")
    large = small_models.products(LAYERS, WIDTH)
    onnx.save(large, made / "inside.onnx")
    onnx.save(large, made / "outside.onnx", save_as_external_data=True, location="50% of #1.bin", size_threshold=1024)
    onnx.save(small_models.affine(), made / "affine.onnx")
    (made / "page.onnx").write_text("<!doctype html><title>Not here</title>")
    (made / "empty.onnx").write_bytes(b"")
    (made / "cut.onnx").write_bytes((made / "inside.onnx").read_bytes()[: 6 << 20])
    return made


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with Server({"/": folder}) as server:
        yield server.url


class Whole(Handler):
    """Knows no ranges."""

    def send_head(self) -> Any:
        del self.headers["Range"]
        return super().send_head()


@pytest.fixture
def plain(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that sends whole files."""
    monkeypatch.setattr(Server, "handler", Whole)
    with Server({"/": folder}) as server:
        yield server.url


@pytest.mark.parametrize("name", ["inside", "outside"])
def test_weights_are_not_fetched(name: str, url: str, folder: Path) -> None:
    found = inspect(f"{url}/{name}.onnx")
    assert found["size"] == sum(p.stat().st_size for p in folder.glob("inside.onnx" if name == "inside" else "[5o]*"))
    assert 0 < found["fetched"] < found["size"] / 100
    assert found["weights"] == {
        "tensors": LAYERS + 1, "bytes": 4 * LAYERS * WIDTH * WIDTH + 16,
        "types": {"float32": 4 * LAYERS * WIDTH * WIDTH, "int64": 16},
    }  # fmt: skip
    assert found["operators"] == {"MatMul": LAYERS, "Reshape": 1} and found["unsupported"] == []
    assert found["inputs"] == [{"name": "x", "type": "tensor(float)", "shape": ["n", WIDTH]}]
    assert found["memory"]["weights"] >= 4 * LAYERS * WIDTH * WIDTH and found["memory"]["assumed"] == ["n"]
    assert found["fits"]["here"] is True
    local = inspect(str(folder / f"{name}.onnx"))
    assert local | {"fetched": 0, "fits": 0} == found | {"fetched": 0, "fits": 0}


CACHE = """<ir_version: 10, opset_import: ["" : 20]>
g (float[1, 2, p, 4] past, float[1, 2, s, 4] x) => (float[1, 2, t, 4] present, float[1, 2, s, t] y) {
  present = Concat <axis = 2> (past, x)
  turned = Transpose <perm = [0, 1, 3, 2]> (present)
  y = MatMul (x, turned)
}"""
SESSIONS = ["affine", "digits", "mobilenet_v2", "lstm_tagger", "yolo_nms", "loop", "branch", "cache"]


@pytest.mark.parametrize("name", SESSIONS)
def test_memory_is_that_of_the_session(name: str, tmp_path: Path) -> None:
    path, feeds = case(name, tmp_path)
    session = InferenceSession(path)
    dims = {d: n for i in session.get_inputs() for d, n in zip(i.shape, feeds[i.name].shape, strict=True)}
    sizes = {d: n for d, n in dims.items() if isinstance(d, str) and n != 1}  # dims count as 1 otherwise
    told = inspect(str(path), SessionOptions(free_dimension_overrides=sizes))["memory"]
    session.run(None, feeds)
    held = session.memory().providers["wasm"]
    assert told["weights"] == pytest.approx(held.weights, rel=0.02, abs=4096)
    assert told["run"] == pytest.approx(held.peak, rel=0.02, abs=4096)
    assert told["peak"] == max(told["loading"], told["weights"] + told["run"])
    assert session.memory().arena <= 1.1 * told["peak"] + (2 << 20)


def test_places_of_a_cache_are_told_by_its_feed(tmp_path: Path) -> None:
    path, _ = case("cache", tmp_path)
    assert inspect(str(path))["memory"]["assumed"] == ["p", "s"]


def case(name: str, folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    if name == "digits":
        return Path("demo/digits/digits.onnx"), {"image": np.zeros((5, 1, 28, 28), np.float32)}
    if name in ("mobilenet_v2", "lstm_tagger", "yolo_nms"):
        return zoo.materialize(name), zoo.inputs(name)
    path = folder / "model.onnx"
    if name == "cache":
        onnx.save(onnx.parser.parse_model(CACHE), path)
        return path, {"past": np.zeros((1, 2, 5000, 4), np.float32), "x": np.zeros((1, 2, 1, 4), np.float32)}
    if name == "affine":
        onnx.save(small_models.affine(), path)
        return path, {"x": np.zeros((64, 4), np.float32)}
    onnx.save(control(name), path)
    return path, {"x": np.ones(5000, np.float32), "go": np.array(True)}


def control(name: str) -> onnx.ModelProto:
    """A loop that carries a tensor, or a branch whose sides differ in what they hold."""
    x, flag, node = (TensorProto.FLOAT, [5000]), (TensorProto.BOOL, []), helper.make_node
    if name == "loop":
        values = [("i", TensorProto.INT64, []), ("c", *flag), ("v", *x)]
        steps = [node("Identity", ["c"], ["again"]), node("CumSum", ["v", "axis"], ["w"])]
        body = graph(steps, values, [("again", *flag), ("w", *x)])
        nodes = [node("Loop", ["trips", "go", "x"], ["y"], body=body)]
    else:
        long = [node("CumSum", ["x", "axis"], ["s"]), node("CumSum", ["s", "axis"], ["out"])]
        sides = [graph(steps, [], [("out", *x)]) for steps in (long, [node("Neg", ["x"], ["out"])])]
        nodes = [node("If", ["go"], ["y"], then_branch=sides[0], else_branch=sides[1])]
    weights = {"axis": np.array(0, np.int64), "trips": np.array(3, np.int64)}
    return small_models.model(nodes, [("x", *x), ("go", *flag)], [("y", *x)], weights)


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> onnx.GraphProto:
    return small_models.model(nodes, inputs, outputs).graph


def test_servers_without_ranges(plain: str, folder: Path) -> None:
    """Small files come whole; of a large one its size is told."""
    assert inspect(f"{plain}/affine.onnx")["fetched"] == (folder / "affine.onnx").stat().st_size
    size = (folder / "inside.onnx").stat().st_size
    with pytest.raises(InvalidModel, match=f"ignores range requests, {size} bytes would have to be fetched"):
        inspect(f"{plain}/inside.onnx")
    with pytest.raises(InvalidModel, match="50%25%20of%20%231.bin: .*ignores range requests, 33554432 bytes"):
        inspect(f"{plain}/outside.onnx")


REFUSED = {
    "nowhere.onnx": (ModelNotFound, "HTTP 404"),
    "page.onnx": (InvalidModel, "a web page"),
    "empty.onnx": (InvalidModel, "the file is empty"),
    "cut.onnx": (InvalidModel, "cut off"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_model(name: str, url: str) -> None:
    kind, text = REFUSED[name]
    with pytest.raises(kind, match=text):
        inspect(f"{url}/{name}")


def test_nobody_answers() -> None:
    with pytest.raises(InvalidModel, match="cannot fetch http://localhost:9/m.onnx: .*refused"):
        inspect("http://localhost:9/m.onnx")


class Odd(Handler):
    """Tells a size that is no number."""

    def end_headers(self) -> None:
        self._headers_buffer = [b"HTTP/1.0 200 OK\r\nContent-Length: abc\r\n"]
        super().end_headers()


def test_addresses_and_answers_that_are_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "handler", Odd)
    with Server({"/": folder}) as server:
        for address in ("http://[::1", "http://a\0b/m.onnx", "http://a..b/", f"{server.url}/affine.onnx"):
            with pytest.raises(InvalidModel, match="cannot fetch "):
                inspect(address)


def every_second(data: bytes) -> memoryview:
    return memoryview(np.repeat(np.frombuffer(data, np.uint8), 2).data)[::2]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, every_second, MemorySource])
def test_bytes_of_any_kind(kind: Any, folder: Path) -> None:
    path = folder / "affine.onnx"
    assert inspect(kind(path.read_bytes())) | {"fits": 0} == inspect(path) | {"fits": 0}
    program = InferenceSession(path).export(weights=True)
    if kind is not MemorySource:
        assert [i.name for i in InferenceSession(kind(path.read_bytes())).get_inputs()]
        assert [i.name for i in InferenceSession(kind(program)).get_inputs()]
        assert inspect(kind(program))["size"] == len(program)


@pytest.mark.parametrize("model", [io.BytesIO(b"model"), None, 5, "a\0b"])
def test_what_is_neither_a_path_nor_bytes(model: Any) -> None:
    for take in (inspect, InferenceSession):
        with pytest.raises((InvalidInput, InvalidModel), match="cannot be read|not as"):
            take(model)


@pytest.mark.parametrize("size", [1 << 16, 1 << 17])
def test_a_file_that_changes(size: int, url: str, folder: Path) -> None:
    path = folder / "changing.onnx"
    path.write_bytes((folder / "inside.onnx").read_bytes()[: 1 << 16])
    source = url_source.UrlSource(f"{url}/changing.onnx")
    path.write_bytes(bytes(size))
    os.utime(path, (0, 0))
    with pytest.raises(InvalidModel, match="has changed while it was read"):
        source.read(1 << 14, 10)


class Elsewhere(Handler):
    """Sends the file's first bytes, whatever is asked for, or does not say which they are."""

    def send_header(self, keyword: str, value: str) -> None:
        if keyword == "Content-Range":
            value = f"bytes 7-{value.partition('-')[2]}" if "cut" in self.path else f"{value.partition('/')[0]}/*"
        super().send_header(keyword, value)


@pytest.mark.parametrize("name", ["cut", "affine"])
def test_parts_that_were_not_asked_for(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "handler", Elsewhere)
    with Server({"/": folder}) as server, pytest.raises(InvalidModel, match="a range that was not requested"):
        inspect(f"{server.url}/{name}.onnx")


class Faltering(Handler):
    """Each of the first answers has a status of its own, or breaks off in the middle (0)."""

    answers: list[int]

    def send_head(self) -> Any:
        status = self.answers.pop(0) if self.answers else HTTPStatus.OK
        if status >= HTTPStatus.BAD_REQUEST:
            self.close_connection = True
            return self.send_error(status)
        body = super().send_head()
        if status or not body:
            return body
        self.close_connection = True
        return Part(body, 100)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([0, 0, 200, 0], ""),
        ([503, 429, 0], ""),
        ([0] * 9, r"cannot fetch .*\(100 bytes read"),
        ([503] * 9, "HTTP 503 .*try again later"),
        ([403], "HTTP 403 .*check the address"),
    ],
)
def test_servers_that_falter(answers: list[int], told: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_source, "PAUSES", (0.0, 0.01, 0.01))
    monkeypatch.setattr(Server, "handler", type("Now", (Faltering,), {"answers": list(answers)}))
    with Server({"/": folder}) as server:
        if told:
            with pytest.raises(InvalidModel, match=told):
                inspect(f"{server.url}/inside.onnx")
        else:
            assert inspect(f"{server.url}/inside.onnx")["weights"] == inspect(folder / "inside.onnx")["weights"]


def test_nothing_is_fetched_without_end(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_source, "MOST", 1 << 14)
    source = url_source.UrlSource(f"{url}/inside.onnx")
    with pytest.raises(LimitExceeded, match="1048576 bytes would have to be fetched in addition to 4096"):
        source.read(1 << 20, 1 << 20)


def test_what_does_not_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(folder / "inside.onnx")
    small = inspect(path, SessionOptions(memory_limit=1 << 25))["fits"]
    assert small["here"] is False and small["why"].endswith("a session has 33554432 at most")
    monkeypatch.setattr(inspection, "available_memory", lambda: 1 << 20)
    assert inspect(path)["fits"]["why"].endswith("1048576 are free")


def test_weights_on_the_gpu_do_not_count() -> None:
    """Against the limit of linear memory; the session opens."""
    weight = np.ones((1500, 1500), np.float32)
    value, nodes = (TensorProto.FLOAT, [512, 1500]), [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = small_models.model(nodes, [("x", *value)], [("y", *value)], {"w": weight}).SerializeToString()
    options = SessionOptions(memory_limit=8 << 20)
    told, on_cpu = (inspect(model, options, providers) for providers in ([GPU, "wasm"], ["wasm"]))
    assert told["memory"]["peak"] > weight.nbytes > told["memory"]["linear"] > 0 and told["fits"]["here"] is True
    assert on_cpu["memory"]["linear"] == on_cpu["memory"]["peak"] and on_cpu["fits"]["here"] is False
    session = InferenceSession(model, options, [GPU, "wasm"])
    assert session.run(None, {"x": np.ones((512, 1500), np.float32)})[0].max() == 1500


def test_what_the_compiler_refuses_is_told() -> None:
    nodes = [helper.make_node("Frobnicate", ["x"], ["y"], name="f")]
    value = (TensorProto.FLOAT, [2])
    found = inspect(small_models.model(nodes, [("x", *value)], [("y", *value)]).SerializeToString())
    (text,) = found["unsupported"]
    assert text.startswith('Frobnicate "f" (opset 17): operator Frobnicate is unknown')
    assert found["memory"] is None and found["fits"]["here"] is None
    wrong = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    bad = small_models.model(wrong, [("x", *value)], [("y", *value)], {"shape": np.array([3], np.int64)})
    assert inspect(bad.SerializeToString())["refused"].startswith('Reshape "y" (opset 17): ')


def test_programs() -> None:
    program = InferenceSession("demo/digits/digits.onnx").export(weights=True)
    found, before = inspect(program), inspect("demo/digits/digits.onnx")
    # The file's is for any engine (docs/design/cpu-kernels.md#code-for-cranelift).
    assert found["program"].pop("code") and before["program"].pop("code")
    for key in ("memory", "program", "inputs", "outputs"):
        assert found[key] == before[key]
    assert found["size"] == len(program) and found["weights"]["bytes"] >= before["weights"]["bytes"]


def test_the_command_takes_addresses(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", f"{url}/inside.onnx", "--dim", "n=7"]) == 0
    text = capsys.readouterr().out
    assert "32.0 MiB float32" in text and "[n, 1024]" in text and "bytes, 0." in text and " are 1" not in text
    assert main(["inspect", f"{url}/inside.onnx", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report | {"fits": 0} == inspect(f"{url}/inside.onnx") | {"fits": 0}
    for argv, told in (
        ([f"{url}/nowhere.onnx"], "HTTP 404"),
        ([f"{url}/affine.onnx", "--code"], "needs the whole model"),
    ):
        assert main(["inspect", *argv]) == 2
        assert told in capsys.readouterr().err
