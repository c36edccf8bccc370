"""The command line: what each command prints, and which inputs it rejects."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kit import gguf_models, small_models, zoo
from kit.models import MODELS
from pyruntime import InferenceSession, __version__, errors
from pyruntime.cli import COMMANDS, main, progress
from pyruntime.cli.timeline import Span, draw, record
from pyruntime.training.files import safetensors
from pyruntime.training.files.safetensors import Stored
from tests.test_session import info, model

DIGITS = Path(__file__).parents[1] / "demo" / "digits" / "digits.onnx"


@pytest.fixture(autouse=True)
def nothing_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """No progress messages, even on a busy machine."""
    monkeypatch.setattr(progress, "SECOND", 60.0)


def say(capsys: pytest.CaptureFixture[str], *argv: object, status: int = 0) -> str:
    """Run a command and return its output, or its error output if the expected status is not 0."""
    assert main([str(a) for a in argv]) == status
    out = capsys.readouterr()
    return out.err if status else out.out


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    text = say(capsys, "--help")
    assert all(name in text for name in COMMANDS)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert say(capsys, "--version") == f"{__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0 and f"pyruntime {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "serve"])
def test_examples_of_the_help_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(small_models.affine(), "model.onnx")
    gguf_models.write(Path("model.gguf"), "llama")
    a, b = np.ones((2, 4), np.float32), np.ones((3, 2), np.float32)
    adapter = {"w.lora_A": Stored("float32", a.shape, a), "w.lora_B": Stored("float32", b.shape, b)}
    Path("style.safetensors").write_bytes(safetensors.write(adapter, {}))
    np.savez("x.npz", x=np.zeros((2, 4), np.float32))
    examples = import_module(f"pyruntime.cli.{name}").EXAMPLES
    assert examples
    for arguments in examples:
        small = ["--smallest", "1"] if "--bits" in arguments else []
        assert say(capsys, name, *shlex.split(arguments), *small), arguments


def test_what_takes_long_is_told_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "SECOND", 0.02)
    with progress.doing("waiting"):
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "waiting …\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert [time.sleep(0.05) for _ in progress.counted("run", range(3))] == [None] * 3
    lines = capsys.readouterr().err.split("\r")
    assert "run 2 of 3: 0 s" in lines and lines[-1] == "" and lines[-2].isspace(), "and taken away"
    with progress.doing("soon over"):
        pass
    assert not capsys.readouterr().err


def test_a_reader_that_stops_reading_is_no_error() -> None:
    """`pyruntime inspect … | head -1` ends without a traceback."""
    command = [sys.executable, "-m", "pyruntime.cli", "inspect", str(DIGITS), "--code"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=DIGITS.parents[2]) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 1 and b"Broken pipe" not in process.stderr.read()


def test_run_takes_and_saves_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(1).random((3, 1, 28, 28), np.float32)
    np.savez(tmp_path / "x.npz", image=x)
    text = say(capsys, "run", DIGITS, "--inputs", tmp_path / "x.npz", "--out", tmp_path / "y.npz")
    assert "probabilities  float32 [3, 10]" in text
    with np.load(tmp_path / "y.npz") as saved:
        np.testing.assert_array_equal(saved["probabilities"], InferenceSession(DIGITS).run(None, {"image": x})[0])


def test_random_inputs_take_dims(capsys: pytest.CaptureFixture[str]) -> None:
    name = next(d for d in InferenceSession(DIGITS).get_inputs()[0].shape if isinstance(d, str))
    assert "[5, 10]" in say(capsys, "run", DIGITS, "--random", "--dim", f"{name}=5")


def test_inspect(capsys: pytest.CaptureFixture[str]) -> None:
    text = say(capsys, "inspect", zoo.materialize("minilm"))
    assert "attention_mask  tensor(int64)" in text and re.search(r"48  MatMul", text)
    assert "86.1 MiB" in text and "ai.onnx 20" in text and "kernel calls" in text


def test_inspect_prints_kernels_and_code(capsys: pytest.CaptureFixture[str]) -> None:
    text = say(capsys, "inspect", DIGITS, "--kernels")
    assert "in each run, on wasm" in text and "parallel for v0 in" in text and "(func $" not in text
    part = say(capsys, "inspect", DIGITS, "--code", "--node", "MaxPool")
    assert "MaxPool" in part and "(func $" in part and "Gemm" not in part and len(part) < len(text) * 50
    assert "local.get" in part


def test_inspect_prints_shaders(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("wgpu")
    text = say(capsys, "inspect", DIGITS, "--code", "--provider", "webgpu")
    assert "in each run, on webgpu" in text and "@compute" in text and "fn main(" in text
    both = say(capsys, "inspect", MODELS["lstm_tagger"].path(), "--code", "--provider", "webgpu")
    assert "fn main(" in both and "(func $" in both, "a node may have code of both"


def test_inspect_compiles_for_feeds_where_it_must(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], name="r")]
    path = tmp_path / "shape.onnx"
    path.write_bytes(model(nodes, [info("x", [4]), info("shape", [2], TensorProto.INT64)], [info("y", [None, None])]))
    np.savez(tmp_path / "x.npz", x=np.zeros(4, np.float32), shape=np.array([2, 2]))
    assert 'Reshape "r"' in say(capsys, "inspect", path, "--kernels", "--inputs", tmp_path / "x.npz")


def test_inspect_names_all_that_is_not_supported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="f"),
        helper.make_node("Relu", ["a"], ["b"], name="r", speed=3),
        helper.make_node("Neg", ["b"], ["y"], name="n"),
    ]
    path = tmp_path / "bad.onnx"
    path.write_bytes(model(nodes, [info("x", [1])], [info("y", [1])]))
    assert main(["inspect", str(path)]) == 2
    out = capsys.readouterr()
    assert 'Frobnicate "f" (opset 20): operator Frobnicate is unknown' in out.out
    assert 'Relu "r" (opset 20): attribute speed is not supported' in out.out and '"n"' not in out.out
    assert out.err.count("\n") == 2 and out.err.endswith("Causes and remedies: pyruntime help UnsupportedOp\n")


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert "median" in say(capsys, "bench", DIGITS, "--runs", 2)
    found = json.loads(say(capsys, "bench", DIGITS, "--runs", 2, "--json"))
    assert 0 < found["fastest"] <= found["median"] <= found["slowest"] and found["weights"] > 100_000


def test_profile_writes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = say(capsys, "profile", DIGITS, "--runs", 2, "--trace", tmp_path / "t.json")
    assert "Conv" in text and " %" in text
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    ends = [e["ts"] + e["dur"] for e in events]
    assert len(events) > 3 and all(e["ts"] >= end - 1e-6 for e, end in zip(events[1:], ends, strict=False))


def test_tune_saves_what_was_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    choices = tmp_path / "c.json"
    text = say(capsys, "tune", DIGITS, "--seconds", 0, "--save", choices)
    assert "times as fast; tuning took" in text and isinstance(json.loads(choices.read_text()), dict)
    choices.write_text('{"winograd_tiles": {"": 128}}')
    assert "probabilities" in say(capsys, "run", DIGITS, "--random", "--choices", choices)
    assert "takes no --choices" in say(capsys, "tune", DIGITS, "--choices", choices, status=2)
    choices.write_text('{"winograd_tiles": {"": 7}}')
    assert "winograd_tiles cannot be 7" in say(capsys, "run", DIGITS, "--random", "--choices", choices, status=2)
    choices.write_text("no")
    assert "is not JSON" in say(capsys, "run", DIGITS, "--random", "--choices", choices, status=2)


def test_memory_draws_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = say(capsys, "memory", DIGITS, "--svg", tmp_path / "m.svg", "--html", tmp_path / "m.html")
    assert "alive at the peak" in text
    svg = ElementTree.parse(tmp_path / "m.svg").getroot()
    titles = [t.text or "" for t in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert any(t.startswith("image") for t in titles) and any(t.startswith("Conv") for t in titles)
    texts = [t.text or "" for t in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "Conv" in texts and any(t.startswith("weights: ") and "all the time" in t for t in texts)
    assert not any("…" in t for t in texts)
    assert "<svg" in (tmp_path / "m.html").read_text()


@pytest.mark.parametrize("name", ["mobilenet_v2", "lstm_tagger", "yolo_nms"])
def test_the_timeline_is_the_plan(name: str) -> None:
    session = InferenceSession(zoo.materialize(name))
    feeds = zoo.inputs(name)
    before = session.run(None, feeds)
    spans = record(session._native, feeds)
    for a, b in zip(session.run(None, feeds), before, strict=True):
        np.testing.assert_array_equal(a, b)
    end = max(s.end for s in spans)
    assert max(sum(s.size for s in spans if s.start <= t < s.end) for t in range(end)) >= 0.9 * session.memory().peak
    for t in range(end):
        alive = sorted((s for s in spans if s.start <= t < s.end), key=lambda s: s.address)
        assert all(apart(a, b, t) for a, b in zip(alive, alive[1:], strict=False))


def apart(a: Span, b: Span, t: int) -> bool:
    """Whether two spans share no bytes, or one gives its place to the other in this very call."""
    return a.address + a.size <= b.address or t in (a.end - 1, b.end - 1)


def test_a_drawing_has_no_gaps_where_weights_lie() -> None:
    svg = draw([Span("a", 0, 64, 0, 2), Span("b", 1 << 30, 64, 1, 3)], "m")
    heights = [float(h) for h in re.findall(r'<rect [^>]*height="([\d.]+)"[^/>]*>', svg)]  # not the legend's
    assert heights == [320.0, 320.0]


def test_an_exported_model_runs_from_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(DIGITS.read_bytes())
    assert "must be in the same folder" in say(capsys, "export", path, tmp_path / "m.pyrt")

    def output(file: Path) -> str:
        """What a run prints, to four places: exported code adds in another order."""
        return re.sub(r"(\.\d{4})\d+", r"\1", say(capsys, "run", file, "--random"))

    expected = output(path)
    assert output(tmp_path / "m.pyrt") == expected
    say(capsys, "export", path, tmp_path / "whole.pyrt", "--weights")
    path.unlink()
    assert output(tmp_path / "whole.pyrt") == expected
    assert "kernel calls" in say(capsys, "inspect", tmp_path / "whole.pyrt")
    assert "m.onnx" in say(capsys, "run", tmp_path / "m.pyrt", "--random", status=2)


@pytest.mark.parametrize(("options", "relaxed"), [([], False), (["--portable"], False), (["--relaxed"], True)])
def test_exported_code_is_portable_unless_told(
    options: list[str], relaxed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = MODELS["mobilenet_v2"].path()  # its products have multiply-adds, which relaxed SIMD fuses
    say(capsys, "export", path, tmp_path / "m.pyrt", "--weights", *options)
    other, same = (InferenceSession(path).export(weights=True, relaxed=r) for r in (not relaxed, relaxed))
    assert (tmp_path / "m.pyrt").read_bytes() == same != other


REFUSED: dict[str, tuple[list[Any], str]] = {
    "no model named": (["run"], "arguments are required: MODEL (pyruntime run --help)"),
    "number": (["bench", DIGITS, "--runs", "many"], "argument --runs: invalid number value: 'many'"),
    "no runs": (["bench", DIGITS, "--runs", "0"], "argument --runs: 0 is not from 1 on"),
    "threads": (["run", DIGITS, "--threads", "100000"], "argument --threads: 100000 is not from 0 to 1024"),
    "port": (["serve", ".", "--port", "65536"], "argument --port: 65536 is not from 0 to 65535"),
    "unknown dim": (["run", DIGITS, "--random", "--dim", "n=2"], "--dim: no input has a dim \"n\" (there are ['N'])"),
    "option": (["inspect", DIGITS, "--colour"], "unrecognized arguments: --colour (pyruntime inspect --help)"),
    "no folder": (["serve", "nowhere"], "nowhere does not exist"),
    "no mount": (["serve", ".", "--mount", "/a=nowhere"], "--mount /a=nowhere: nowhere is not a folder"),
    "no prefix": (["serve", ".", "--mount", "demo"], "--mount demo: it is not a folder (/PREFIX=FOLDER)"),
    "command": (["blend"], 'unknown command "blend"'),
    "no file": (["run", "nowhere.onnx"], "nowhere.onnx is not a file"),
    "no model": (["inspect", __file__], "test_cli.py: "),
    "no inputs": (["run", DIGITS], "the model has inputs: image"),
    "no npz": (["run", DIGITS, "--inputs", DIGITS], "digits.onnx is not an .npz file (numpy.savez"),
    "missing npz": (["run", DIGITS, "--inputs", "nowhere.npz"], "nowhere.npz: No such file"),
    "dim": (["run", DIGITS, "--random", "--dim", "n"], '"n" is not of the form NAME=N'),
    "level": (["bench", DIGITS, "--level", "turbo"], "turbo"),
    "provider": (["bench", DIGITS, "--provider", "abacus"], 'provider "abacus" is not known (there are '),
    "node": (["inspect", DIGITS, "--kernels", "--node", "Nowhere"], 'no kernel belongs to a node "Nowhere"'),
    "folder": (["export", DIGITS, "/nowhere/x.pyrt"], "/nowhere/x.pyrt: No such file"),
}


@pytest.mark.parametrize("arguments", ["export", "export --module", "quantize --samples ."])
def test_no_command_overwrites_its_model(arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(shutil.copy(DIGITS, tmp_path))
    name, *options = arguments.split()
    assert "is the file that is read" in say(capsys, name, path, path, *options, status=2)
    assert path.read_bytes() == Path(DIGITS).read_bytes()


def test_help_on_each_kind_of_error(capsys: pytest.CaptureFixture[str]) -> None:
    """What the messages of errors name can be run. Without a kind it lists the commands."""
    kinds = {kind.__name__ for kind in vars(errors).values() if getattr(kind, "help", "")} - {"UnsupportedSizes"}
    for kind in kinds:
        assert say(capsys, "help", kind).startswith(f"# {kind}\n")
    assert set(
        say(capsys, "help", "Nowhere", status=2).partition("there are ")[2].rstrip(")\n").split(", ")
    ) >= kinds - {"UnsupportedOp"}
    assert "causes and remedies" in say(capsys, "help")


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_one_sentence(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv, expected = REFUSED[kind]
    text = say(capsys, *argv, status=2)
    sentence, *page = text.splitlines()
    assert sentence.startswith("pyruntime: ") and expected in sentence
    assert not page or len(page) == 1 and page[0].startswith("Causes and remedies: pyruntime help ")
