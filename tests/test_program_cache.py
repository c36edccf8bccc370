"""The cache of compiled Programs: it returns the right Program or none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import pyruntime
from pyruntime import InferenceSession, OrtValue, SessionOptions
from pyruntime.compiler import user_passes
from pyruntime.errors import LimitExceeded
from pyruntime.frontend import registry
from pyruntime.native.sessions import compiler, program_cache

X = np.arange(6, dtype=np.float32).reshape(2, 3)
TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[n, 3] x) => (float[m, 3] y) <float scale = {2}> {
  a = Mul (x, scale)  b = Relu (a)  y = Add (b, w)
}"""


def model(weight: float = 1, text: str = TEXT) -> onnx.ModelProto:
    made = onnx.parser.parse_model(text)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.full(3, weight, np.float32), "w"))
    return made


@pytest.fixture(autouse=True)
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The compilations, with an empty cache that stores all Programs."""
    monkeypatch.delenv(program_cache.OFF_FOR_ALL, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(program_cache, "WORTH", 0)
    real = compiler.compile_graph
    found: list[Any] = []

    def compile_graph(*args: Any, **named: Any) -> Any:
        made = real(*args, **named)
        found.append(args[0])
        return made

    monkeypatch.setattr(compiler, "compile_graph", compile_graph)
    yield found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(model(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("**/*.pyrt"))


def run(path: Any, options: SessionOptions | None = None, x: np.ndarray = X) -> np.ndarray:
    found: np.ndarray = InferenceSession(path, options).run(None, {"x": x})[0]
    return found


def expected(model: Any, x: np.ndarray = X) -> np.ndarray:
    model = str(model) if isinstance(model, Path) else model
    found: np.ndarray = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    return found


@pytest.mark.parametrize("given", [Path, lambda path: path.read_bytes()], ids=["path", "bytes"])
def test_a_model_is_compiled_once(
    given: Callable[[Path], Any], path: Path, compiled: list[Any], tmp_path: Path
) -> None:
    first, second = InferenceSession(given(path)), InferenceSession(given(path))
    assert len(compiled) == 1 and len(kept(tmp_path)) == 1
    for made in (first, second):
        np.testing.assert_array_equal(made.run(None, {"x": X})[0], expected(path))
        np.testing.assert_array_equal(made.run(None, {"x": X[:1]})[0], expected(path, X[:1]))
    described = [[(v.name, v.type, v.shape) for v in made.get_outputs()] for made in (first, second)]
    assert described[0] == described[1]
    assert first.explain() == second.explain()


@pytest.mark.parametrize("provider", ["webgpu"])
def test_on_the_gpu(provider: str, path: Path, compiled: list[Any]) -> None:
    for _ in range(2):
        made = InferenceSession(path, providers=[provider])
        assert "WebGpuExecutionProvider" in made.get_providers()
        np.testing.assert_array_equal(made.run(None, {"x": X})[0], expected(path))
    assert len(compiled) == 1


def changed_weight(path: Path) -> None:
    onnx.save(model(weight=7), path)


def changed_scale(path: Path) -> None:
    """The same size, and a constant that kernels have in their code."""
    onnx.save(model(text=TEXT.replace("{2}", "{3}")), path)


@pytest.mark.parametrize("change", [changed_weight, changed_scale])
def test_a_changed_model_is_compiled_again(change: Callable[[Path], None], path: Path, compiled: list[Any]) -> None:
    before, size = run(path), path.stat().st_size
    change(path)
    assert path.stat().st_size == size
    np.testing.assert_array_equal(run(path), expected(path))
    assert len(compiled) == 2 and not np.array_equal(before, run(path))


def options(**given: Any) -> Callable[[], SessionOptions]:
    return lambda: SessionOptions(**given)


def other_weight() -> SessionOptions:
    found = SessionOptions()
    found.add_initializer("w", OrtValue.ortvalue_from_numpy(np.full(3, 5, np.float32)))
    return found


@pytest.mark.parametrize(
    "other",
    [
        options(intra_op_num_threads=2), options(graph_optimization_level="disabled"), options(relaxed_simd=False),
        options(free_dimension_overrides={"n": 2}), options(disabled_passes=["map_fusion"]),
        options(choices={"winograd_tiles": {"": 32}}), options(code_size_limit=1 << 20), other_weight,
    ],
)  # fmt: skip
def test_other_options_have_another_key(other: Callable[[], SessionOptions], path: Path, compiled: list[Any]) -> None:
    run(path)
    first, second = run(path, other()), run(path, other())
    assert len(compiled) == 2
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, expected(path) + (4 if other is other_weight else 0))


def test_values_have_another_key(tmp_path: Path, compiled: list[Any]) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
      g (float[n, 3] x, int64[k] s) => (float[a, b] y) { y = Reshape (x, s) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    for _ in range(2):
        made = InferenceSession(tmp_path / "m.onnx")
        for shape in ([3, 2], [1, 6], [3, 2]):
            (y,) = made.run(None, {"x": X, "s": np.array(shape)})
            np.testing.assert_array_equal(y, X.reshape(shape))
    assert len(compiled) == 2


def test_host_steps_are_cached(tmp_path: Path, compiled: list[Any]) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
      g (string[n] x) => (string[m] y) { y = StringNormalizer <case_change_action = "UPPER"> (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    for _ in range(2):
        made = InferenceSession(tmp_path / "m.onnx")
        assert made.run(None, {"x": np.array(["a", "b"], object)})[0].tolist() == ["A", "B"]
    assert len(compiled) == 1


def test_remarks_are_repeated(tmp_path: Path, compiled: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    onnx.save(model(text=TEXT.replace("float[m, 3] y", "float[m, 7] y")), tmp_path / "m.onnx")
    for _ in range(2):
        InferenceSession(tmp_path / "m.onnx")
    assert len(compiled) == 1
    assert caplog.messages == ['output "y" is declared [m, 7], its nodes make [n, 3]'] * 2


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [damage, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x" * 99)])
def test_a_damaged_file_counts_as_absent(
    harm: Callable[[Path], None], path: Path, compiled: list[Any], tmp_path: Path
) -> None:
    run(path)
    harm(*kept(tmp_path))
    np.testing.assert_array_equal(run(path), expected(path))
    np.testing.assert_array_equal(run(path), expected(path))
    assert len(compiled) == 2


def test_a_file_under_another_name_counts_as_absent(path: Path, compiled: list[Any], tmp_path: Path) -> None:
    run(path)
    (first,) = kept(tmp_path)
    changed_scale(path)
    run(path)
    (second,) = set(kept(tmp_path)) - {first}
    second.write_bytes(first.read_bytes())
    np.testing.assert_array_equal(run(path), expected(path))
    assert len(compiled) == 3


def by_environment(monkeypatch: pytest.MonkeyPatch) -> SessionOptions:
    monkeypatch.setenv(program_cache.OFF_FOR_ALL, "1")
    return SessionOptions()


def by_entry(monkeypatch: pytest.MonkeyPatch) -> SessionOptions:
    found = SessionOptions()
    found.add_session_config_entry("session.disable_program_cache", "1")
    return found


def by_size(monkeypatch: pytest.MonkeyPatch) -> SessionOptions:
    monkeypatch.setattr(program_cache, "HASHED", 11)
    return other_weight()


def by_pass(monkeypatch: pytest.MonkeyPatch) -> SessionOptions:
    monkeypatch.setattr(user_passes, "_registered", [])
    pyruntime.graph_pass("mine")(lambda graph: graph)
    return SessionOptions()


def by_operator(monkeypatch: pytest.MonkeyPatch) -> SessionOptions:
    registry.complete()
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    pyruntime.op("Relu", since=1, replaces=True)(lambda t, x: x)
    return SessionOptions()


@pytest.mark.parametrize("off", [by_environment, by_entry, by_size, by_pass, by_operator])
def test_not_cached(
    off: Callable[[pytest.MonkeyPatch], SessionOptions],
    path: Path, compiled: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run(path)
    found = off(monkeypatch)
    x = -X
    y = InferenceSession(path, found).run(None, {"x": x})[0]
    other = {by_operator: 2 * x + 1, by_size: expected(path, x) + 4}
    np.testing.assert_array_equal(y, other.get(off, expected(path, x)))
    assert len(compiled) == 2 and len(kept(tmp_path)) == 1


class Own:
    """A source class of the user: it may return other bytes next time."""

    name = ""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, path.stat().st_size

    def read(self, offset: int, size: int) -> bytes:
        return self.path.read_bytes()[offset : offset + size]


def test_user_sources_have_no_key(path: Path, compiled: list[Any], tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
      g (float[n, 3] x) => (float[a, b] y) { y = Reshape (x, s) }"""
    for shape in ([3, 2], [1, 6]):
        made = onnx.parser.parse_model(text)
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(shape), "s"))
        onnx.save(made, path)
        np.testing.assert_array_equal(run(Own(path)), X.reshape(shape))
    assert len(compiled) == 2 and not kept(tmp_path)


def test_an_engine_that_was_updated_stores_nothing(
    path: Path, compiled: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = max(state[-1] for state in program_cache.engine_files())
    for imported, count in ((first - 1, 0), (first, 1)):
        monkeypatch.setattr(program_cache, "_IMPORTED", imported)
        run(path)
        assert len(kept(tmp_path)) == count


def test_the_code_limit_applies_to_cached_programs(path: Path, compiled: list[Any]) -> None:
    run(path)
    with pytest.raises(LimitExceeded):
        run(path, SessionOptions(code_size_limit=1))


def test_rare_operators_are_not_user_operators(path: Path, compiled: list[Any]) -> None:
    registry.complete()
    assert not registry.is_extended()
    run(path), run(path)
    assert len(compiled) == 1


def test_the_oldest_programs_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "MOST", 3)
    for n in range(5):
        run(model(weight=n).SerializeToString())
        for age, file in enumerate(sorted(kept(tmp_path), key=lambda file: -file.stat().st_mtime)):
            os.utime(file, (1e9 - age, 1e9 - age))
    assert len(kept(tmp_path)) == 3


def test_a_read_only_cache_is_not_an_error(path: Path, compiled: list[Any], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    for _ in range(2):
        np.testing.assert_array_equal(run(path), expected(path))
    assert len(compiled) == 2
