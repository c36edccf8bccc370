"""A key that is not understood is an error, or one warning, wherever options or files are read.

The doors come from the declarations: each table of options, and each kind of file."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyruntime
from kit.decoder_forms import FORMS, decoder
from kit.docs import ROOT
from pyruntime import InferenceSession, InvalidInput, LoraAdapter, RunOptions, SessionOptions, TrainingSession
from pyruntime.api import logs
from pyruntime.api.providers import _OPTIONS as PROVIDERS
from pyruntime.cli import COMMANDS, main
from pyruntime.runtime.adapter_config import APPLIED, METADATA, REFUSED, WITHOUT_EFFECT
from pyruntime.runtime.step_numbers import StepNumbers
from pyruntime.runtime.trained_weights import KNOWN, MISSED, TrainedWeight, TrainedWeights, metadata_of
from pyruntime.session.run_options import RunOptions as Options
from pyruntime.training.files import onnx_adapter, safetensors
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.graph.recipe import OPTIONS
from pyruntime.training.graph.recipe_tables import LOSSES, OPTIMIZERS, SCHEDULES

DIGITS = ROOT / "demo/digits/digits.onnx"
FEEDS = {"image": np.zeros((1, 1, 28, 28), np.float32)}
KEY = "no_such_key"
MSE = {"mse": "probabilities"}


def training(**options: Any) -> None:
    TrainingSession(DIGITS, **{"loss": MSE, **options}).release()


def session_entry() -> None:
    options = SessionOptions()
    options.add_session_config_entry(KEY, "1")
    InferenceSession(DIGITS, options)


def run_entry() -> None:
    options = RunOptions()
    options.add_run_config_entry(KEY, "1")
    InferenceSession(DIGITS).run(None, FEEDS, options)


def lora(config: dict[str, Any] | None = None, metadata: dict[str, str] | None = None) -> None:
    tensors = {f"linear.lora_{x}.weight": Stored("float32", s, bytes(4 * s[0] * s[1])) for x, s in SHAPES.items()}
    found = {"adapter_config": json.dumps({"peft_type": "LORA", "r": 2, **(config or {})}), **(metadata or {})}
    LoraAdapter(safetensors.write(tensors, found))


SHAPES = {"A": (2, 1568), "B": (10, 2)}


def later_adapter() -> None:
    """A file of a later version: its root has a fifth field."""
    data = bytearray(onnx_adapter.write({}, onnx_adapter.Versions()))
    root = struct.unpack_from("<I", data)[0]
    table = len(data)
    old = root - struct.unpack_from("<i", data, root)[0]
    size, length = struct.unpack_from("<HH", data, old)
    fields = struct.unpack_from("<4H", data, old + 4)
    data += struct.pack("<HH5H", size + 2, length, *fields, 4)
    struct.pack_into("<i", data, root, root - table)
    LoraAdapter(bytes(data))


def checkpoint(tensors: dict[str, Any] | None = None, metadata: dict[str, str] | None = None) -> None:
    with TrainingSession(DIGITS, loss=MSE) as session:
        stored, found = safetensors.read(session.state())
        session.load(safetensors.write({**stored, **(tensors or {})}, {**found, **(metadata or {})}))


def doors() -> Iterator[tuple[str, Callable[[], object]]]:
    yield "session option", lambda: setattr(SessionOptions(), KEY, 1)
    yield "session option by name", lambda: SessionOptions(**{KEY: 1})
    yield "session argument", lambda: InferenceSession(DIGITS, **{KEY: 1})
    yield "session entry", session_entry
    yield "run option", lambda: setattr(RunOptions(), KEY, 1)
    yield "run entry", run_entry
    for name in [*PROVIDERS, "wasm"]:
        if name != "webgpu":  # needs a GPU; the same function reads its options
            yield f"provider {name}", lambda name=name: InferenceSession(DIGITS, providers=[(name, {KEY: "1"})])
    yield "training option", lambda: training(**{KEY: 1})
    for name in LOSSES:
        yield f"loss {name}", lambda name=name: training(loss={name: "probabilities", KEY: 1})
    for name in OPTIMIZERS:
        yield f"optimizer {name}", lambda name=name: training(optimizer={name: {KEY: 1}})
    for name in SCHEDULES:
        yield f"schedule {name}", lambda name=name: training(schedule={name: {KEY: 1}})
    yield "groups", lambda: training(groups=[{"match": "*", KEY: 1}])
    for name in ("lora", "clip"):
        yield name, lambda name=name: training(**{name: {KEY: 1}})
    yield "loss of a graph", lambda: training(loss={"onnx": b"", KEY: 1})
    for function in (pyruntime.quantize, pyruntime.inspect):
        yield f"argument of {function.__name__}", lambda function=function: function(DIGITS, **{KEY: 1})
    yield "argument of a method", lambda: InferenceSession(DIGITS).export(**{KEY: 1})
    yield "text setting", lambda: pyruntime.TextGenerator(DECODER).generate([1], **{KEY: 1})
    yield "configuration of PEFT", lambda: lora({KEY: 1})
    yield "metadata of an adapter", lambda: lora(metadata={KEY: "1"})
    yield "field of .onnx_adapter", later_adapter
    yield "tensor of a checkpoint", lambda: checkpoint({KEY: Stored("float32", (1,), bytes(4))})
    yield "metadata of a checkpoint", lambda: checkpoint(metadata={KEY: "1"})
    for command in COMMANDS:
        yield f"command {command}", lambda command=command: command_line(command)


def command_line(command: str) -> None:
    result = ["build/none.pyrt"] if command in ("export", "convert", "quantize") else []
    result += ["--samples", "none.npz"] if command == "quantize" else []
    status = main([command, str(DIGITS), *result, f"--{KEY}"])
    if status:
        raise InvalidInput("the command failed")


DECODER = decoder(next(iter(FORMS.values()))).SerializeToString()
DOORS = dict(doors())


@pytest.mark.parametrize("door", DOORS)
def test_an_unknown_key_is_an_error_or_one_warning(
    door: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_printed", set())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            DOORS[door]()
        except (pyruntime.PyRuntimeError, TypeError) as error:
            is_named = KEY in str(error) or KEY in capsys.readouterr().err or "field 4" in str(error)
            assert is_named, error
            return
    found = [text for text in [*caplog.messages, *(str(x.message) for x in told)] if KEY in text]
    assert len(found) == 1, found


def test_each_field_of_the_formats_is_in_one_table() -> None:
    numbers = StepNumbers({}, "plateau", {}, 0, 1.0)
    numbers.plateau.is_known = True
    trained = TrainedWeights([TrainedWeight("w", [2], "float32")], 1, [], {})
    trained.missed = [1]
    assert {*metadata_of(numbers, trained, "adam", repr), "adapter_config"} == {*KNOWN, f"{MISSED}w"}
    fields = [*APPLIED, *WITHOUT_EFFECT, *REFUSED]
    assert len(fields) == len(set(fields))
    text = (ROOT / "docs/use/adapters.md").read_text()
    assert all(f"`{name}`" in text for name in [*fields, *METADATA])


def test_every_option_has_a_door() -> None:
    assert {name for name in OPTIONS if isinstance(OPTIONS[name].default, dict)} <= {"lora", "clip"}
    assert issubclass(RunOptions, Options)


def test_a_weight_of_a_type_that_weights_cannot_have() -> None:
    with TrainingSession(DIGITS, loss=MSE) as session:
        tensors, metadata = safetensors.read(session.state())
        weights = {**tensors, "linear": Stored("float32", (1568, 10), bytes(4 * 15680))}
        data = safetensors.write(weights, metadata).replace(b'"linear":{"dtype":"F32"', b'"linear":{"dtype":"U32"')
        with pytest.raises(InvalidInput, match='tensor "linear" has the type U32'):
            session.load(data)
