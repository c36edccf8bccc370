"""Mistakes that users make: the message says what is wrong, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from kit.docs import ROOT
from pyruntime import InferenceSession, PyRuntimeError, RunOptions

DIGITS = ROOT / "demo/digits/digits.onnx"
IMAGE = np.zeros((1, 1, 28, 28), np.float32)


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
    "GPU": ({"providers": [("auto", {"device": 1})]}, 'option "device", which has no effect (it has allow_software)'),
    "apart": ({"providers": ["wasm"], "provider_options": [{"x": 4}]}, 'provider "wasm" has no option "x"'),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_providers(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """One message for each that nothing reads, as for other options."""
    how, text = OPTIONS[name]
    InferenceSession(DIGITS, **how)
    assert [text in record.message for record in caplog.records] == [True]
