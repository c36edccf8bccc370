"""Mistakes that users make: the message says what is wrong, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from kit.decoder_forms import FORMS, decoder
from kit.docs import ROOT
from pyruntime import (
    Batcher,
    InferenceSession,
    LoraAdapter,
    OrtValue,
    PyRuntimeError,
    RunOptions,
    SessionOptions,
    TextGenerator,
    TrainingSession,
    op,
    quantize,
)  # fmt: skip
from pyruntime.errors import HIDDEN

DIGITS = ROOT / "demo/digits/digits.onnx"
IMAGE = np.zeros((1, 1, 28, 28), np.float32)


DECODER = decoder(next(iter(FORMS.values()))).SerializeToString()
FIXED = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 20]> g (float[1, 3] x) => (float[1, 3] y) { y = Relu (x) }'
).SerializeToString()


def train(**options: Any) -> TrainingSession:
    return TrainingSession(DIGITS, **{"loss": {"mse": "probabilities"}, **options})


def run(*args: Any) -> Any:
    return InferenceSession(DIGITS).run(*args)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "float64": (lambda: run(None, {"image": IMAGE.astype(float)}), 'x.astype("float32") converts an array'),
    "integers": (lambda: run(None, {"image": IMAGE.astype(np.uint8)}), 'x.astype("float32") converts an array'),
    "texts": (lambda: run(None, {"image": np.full(IMAGE.shape, "0")}), "has element type string, expected float32"),
    "a ModelProto": (lambda: InferenceSession(onnx.load(DIGITS)), "model.SerializeToString() gives its bytes"),
    "no model": (lambda: InferenceSession(None), "by its path or its bytes, not as NoneType"),
    "an address": (lambda: InferenceSession("https://host/model.onnx"), "download the model"),
    "a folder": (lambda: InferenceSession(ROOT), "Is a directory"),
    "adapters as an attribute": (lambda: setattr(RunOptions(), "adapters", ["mine"]), "add_active_adapter"),
    "a dict of run options": (lambda: run(None, {"image": IMAGE}, {"terminate": True}), "pyruntime.RunOptions"),
    "options as providers": (lambda: InferenceSession(DIGITS, ["wasm"]), "sess_options cannot be of type list"),
    "other objects": (lambda: run(None, {"image": object()}), "has elements of type object (give an array of numbers"),
    "a pickle": (lambda: InferenceSession(b"\x80\x04\x95" + bytes(9)), "a Python pickle"),
    "a path with ~": (lambda: InferenceSession("~/model.onnx"), "os.path.expanduser replaces ~"),
    "another folder": (lambda: InferenceSession("no.onnx"), "the current folder is"),
    "a value of a provider": (
        lambda: InferenceSession(DIGITS, None, [("auto", {"allow_software": "maybe"})]),
        'allow_software of "auto" cannot be',
    ),
    "options that are no texts": (lambda: RunOptions().add_run_config_entry("a", 1), "must be texts"),
    "the severity of a run": (
        lambda: setattr(RunOptions(), "log_severity_level", "high"),
        "cannot be 'high' (an integer)",
    ),
    "terminate as a text": (
        lambda: setattr(RunOptions(), "terminate", "no"),
        "terminate cannot be 'no' (True or False)",
    ),
    "a path to export": (lambda: InferenceSession(DIGITS).export("x.pyrt"), "weights cannot be 'x.pyrt'"),
    "a batcher of a path": (lambda: Batcher(DIGITS), "session cannot be of type"),
    "a batch of one": (lambda: Batcher(InferenceSession(FIXED)), "a model with a fixed batch cannot"),
    "sizes below zero": (lambda: OrtValue.ortvalue_from_shape_and_type([-1]), "shape cannot be [-1] (sizes from 0 on)"),
    "a Program to quantise": (
        lambda: quantize(InferenceSession(DIGITS).export(True)),
        "a Program that pyruntime exported",
    ),
    "quantised twice": (lambda: quantize(quantize(DIGITS, smallest=1)), "to_bytes() gives its bytes"),
    "no file of weights": (lambda: train().load("no.safetensors"), 'there is no file "no.safetensors"'),
    "a model as a checkpoint": (lambda: train().load(DIGITS), "this is no safetensors file"),
    "a model as an adapter": (lambda: LoraAdapter(DIGITS), "checkpoints and adapters are such files"),
    "a class that is none": (
        lambda: train(loss={"nll": "probabilities"}).step({"image": IMAGE, "target": np.array([12])}),
        'Loss "nll of probabilities" (opset 1): index 12 is out of range for 10 elements (target[0] is 12)',
    ),
    "a model for training": (lambda: TrainingSession(loss="loss"), "the argument 'model' is missing"),
    "an output to evaluate": (lambda: train().evaluate({"image": IMAGE}, ["logits"]), "(outputs are probabilities)"),
    "no file of a tokenizer": (lambda: TextGenerator(DECODER, "no.json"), 'there is no file "no.json"'),
    "half a tokenizer": (lambda: TextGenerator(DECODER, {}), "with encode(text) and decode(ids)"),
    "a tokenizer of another model": (
        lambda: TextGenerator(DECODER).generate([10**6]),
        "does the tokenizer belong to this model?",
    ),
    "stop tokens as a text": (lambda: TextGenerator(DECODER, stop_tokens="</s>"), "a list of integers"),
    "stop as a number": (lambda: TextGenerator(DECODER).generate([1], stop=3), "stop is 3"),
    "an operator that is no function": (lambda: op("Nothing")("x"), "is no function"),
    "an unknown argument": (lambda: InferenceSession(DIGITS, device="gpu"), "no argument 'device'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_messages(name: str) -> None:
    work, text = MISTAKES[name]
    with pytest.raises(PyRuntimeError) as error:
        work()
    assert text in str(error.value)
    assert error.value.__notes__[0].startswith("Causes and remedies: pyruntime help ")


@pytest.mark.parametrize(
    "name, text",
    [("wsam", '(did you mean "wasm"?)'), ("CUDAExecutionProvider", "(available are CPUExecutionProvider,")],
)
def test_unknown_providers(name: str, text: str) -> None:
    with pytest.warns(UserWarning) as told:
        InferenceSession(DIGITS, providers=[name])
    assert f'provider "{name}" is unknown and skipped {text}' in str(told[0].message)
    assert told[0].filename == __file__


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "CPU": ({"providers": [("wasm", {"threads": 4})]}, 'no option "threads", which has no effect (it has none)'),
    "GPU": (
        {"providers": [("auto", {"device": 1})]},
        'option "device", which has no effect (it has allow_software, power_pref',
    ),
    "apart": ({"providers": ["wasm"], "provider_options": [{"x": 4}]}, 'provider "wasm" has no option "x"'),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_providers(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """One message for each that nothing reads, as for other options."""
    how, text = OPTIONS[name]
    InferenceSession(DIGITS, **how)
    assert [text in record.message for record in caplog.records] == [True]


ADAPTED: dict[str, Callable[[Any], Any]] = {
    "a misspelt feed": lambda s: s.run(None, {"img": IMAGE}),
    "no feed": lambda s: s.run(None, {}),
    "a dim": lambda s: s.prepare({"batch": 3}),
    "an output": lambda s: s.run(["logits"], {"image": IMAGE}),
    "a misspelt feed of a step": lambda _: train().step({"img": IMAGE}),
    "an output of an evaluation": lambda _: train(accumulate=True).evaluate({"image": IMAGE}, ["logits"]),
    "a loss that is no number": lambda _: train(loss={"output": "probabilities"}),
}


@pytest.mark.parametrize("name", ADAPTED)
def test_names_that_no_caller_gives_are_in_no_message(name: str) -> None:
    """Those of the feeds, outputs and dims that the engine adds for adapters and for training."""
    options = SessionOptions()
    options.adapters = {"a": train(lora={"rank": 2}).adapter()}
    with pytest.raises(PyRuntimeError) as error:
        ADAPTED[name](InferenceSession(DIGITS, options))
    assert not any(hidden in str(error.value) for hidden in HIDDEN)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_feeds_that_no_caller_gives_are_refused(hidden: str) -> None:
    with pytest.raises(PyRuntimeError, match="does not exist"):
        train().step({"image": IMAGE, "target": np.zeros((1, 10)), hidden: IMAGE})
