"""Public methods refuse arguments of another type by a typed error; None counts as absent where there is a default."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

import pyruntime
from kit.docs import ROOT
from pyruntime import InferenceSession, InvalidInput, OrtValue, PyRuntimeError, RunOptions, SessionOptions
from pyruntime.api import training
from pyruntime.api.names import NAMES
from pyruntime.arguments import checked, kind_of, parameter_kind
from pyruntime.options import UnknownOption
from pyruntime.session.run_options import _OPTIONS

DIGITS = ROOT / "demo/digits/digits.onnx"
IMAGE = np.zeros((1, 1, 28, 28), np.float32)
FUNCTIONS = {"quantize": pyruntime.quantize, "inspect": pyruntime.inspect}
# Checked by their own code, with tests of their own: they are called often (run), or take any object.
OWN_CHECKS = {
    "InferenceSession", "InferenceSession.run", "InferenceSession.run_with_iobinding", "OrtValue", "SessionOptions",
    "InferenceSession.run_with_ort_values", "RunOptions.add_active_adapter", "RunOptions.add_run_config_entry",
    "RunOptions.get_run_config_entry", "SessionOptions.add_free_dimension_override_by_name",
}  # fmt: skip
CLASSES = [
    # the engine calls the methods of an ArrayProvider, and checks their answers
    *(getattr(pyruntime, n) for n in pyruntime.__all__ if n not in ("GpuTensor", "ExecutionMode", "ArrayProvider")),
    NAMES["AdapterFormat"], *(getattr(training, name) for name in ("CheckpointState", "Module", "Optimizer")),
]  # fmt: skip


def methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield from FUNCTIONS.items()
    for cls in CLASSES:
        if not inspect.isclass(cls) or issubclass(cls, (PyRuntimeError, str)):
            continue
        for name in dir(cls):
            member = inspect.getattr_static(cls, name)
            function = getattr(member, "__func__", member)
            if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                yield cls.__name__ + ("" if name == "__init__" else f".{name}"), function


PARAMETERS = [
    pytest.param(function, p, id=f"{name}({p.name})")
    for name, function in methods()
    for p in inspect.signature(function).parameters.values()
    if p.name not in ("self", "cls") and p.kind is not p.VAR_KEYWORD and name not in OWN_CHECKS
]


class Other:
    """An object of a type that no parameter has."""


@pytest.mark.parametrize(("function", "parameter"), PARAMETERS)
def test_another_type_is_refused(function: Any, parameter: inspect.Parameter) -> None:
    """Whatever the other arguments are: the first wrong one is named, before anything happens."""
    if parameter_kind(inspect.unwrap(function), parameter) is None:
        assert "Any" in str(parameter.annotation) or "ModelProto" in str(parameter.annotation)
        return
    owner = [Other()] if {"self", "cls"} & inspect.signature(function).parameters.keys() else []
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_ONLY]
    before = (
        [np.zeros(1) for name in names[: names.index(parameter.name)] if name != "cls"]
        if parameter.name in names
        else []
    )
    with pytest.raises(InvalidInput, match=rf"{parameter.name} cannot be of type Other \("):
        if parameter.name in names:
            function(*owner, *before, Other())
        else:
            function(*owner, **{parameter.name: Other()})


def test_the_walk_sees_the_public_methods() -> None:
    assert len(PARAMETERS) > 100
    names = {name for name, _ in methods()}
    assert names >= OWN_CHECKS | {"Batcher.submit", "TextGenerator.generate", "TrainingSession.step", "quantize"}


@pytest.mark.parametrize(("call", "default"), [
    (lambda s, x: s.profile({"image": IMAGE}, repeat=x), 1),
    (lambda s, x: s.export(weights=x), False),
    (lambda s, x: s.run_async(None, {"image": IMAGE}, lambda *_: None, None, x), None),
    (lambda s, x: s.io_binding().bind_output("probabilities", x), "cpu"),
    (lambda s, x: pyruntime.Batcher(s, x).close(), 8),
    (lambda s, x: OrtValue.ortvalue_from_shape_and_type([2], np.float32, x), "cpu"),
    (lambda s, x: pyruntime.quantize(DIGITS, x, smallest=1), 4),
])  # fmt: skip
def test_none_is_the_default(call: Any, default: Any) -> None:
    session = InferenceSession(DIGITS)
    call(session, None)
    call(session, default)


def test_none_in_options() -> None:
    options = SessionOptions()
    for name in options.__dataclass_fields__:
        before = getattr(options, name)
        setattr(options, name, None)
        assert getattr(options, name) == before, name
    run = RunOptions()
    for name, (default, _) in _OPTIONS.items():
        setattr(run, name, None)
        assert getattr(run, name) == default
    session = InferenceSession(DIGITS, options)
    assert session.run(None, {"image": IMAGE}, run)[0].shape == (1, 10)
    none = dict.fromkeys(("optimizer", "frozen", "clip", "seed", "lora", "schedule"))
    pyruntime.TrainingSession(DIGITS, loss={"mse": "probabilities", "scale": None}, **none).release()


@pytest.mark.parametrize("options", [SessionOptions, RunOptions])
def test_names_that_are_no_options(options: Any) -> None:
    with pytest.raises(UnknownOption, match="did you mean"):
        options().logId = "x"  # as JavaScript spells it
    with pytest.raises(AttributeError, match="there are "):
        options().zzz = 1


@pytest.mark.parametrize(("annotation", "good", "bad"), [
    (int, [1, np.int64(3)], [True, 1.0, "1", None]), (float, [1, 0.5, np.float32(1)], [True, "1", None]),
    (bool, [True, 0, np.bool_(True)], [2, "yes", None]), (str | None, ["a", None], [1, b"a"]),
    (list[int] | None, [[1, 2], (3,), np.array([1]), None], ["12", [1.5], 5]),
    (Mapping[str, Any], [{}], [[], None]), (Callable[[int], str], [print], ["print"]),
    (RunOptions, [RunOptions()], [{}]), (Any, [1, None], []),
])  # fmt: skip
def test_the_values_of_annotations(annotation: Any, good: list[Any], bad: list[Any]) -> None:
    kind = kind_of(annotation)
    assert (kind is None) == (annotation is Any)
    if kind is not None:
        assert [kind.takes(x) for x in good] == [True] * len(good)
        assert [kind.takes(x) for x in bad] == [False] * len(bad)


def test_messages() -> None:
    @checked
    def scaled(x: float, by: int = 2, *, names: list[str] | None = None) -> float:
        return x * by

    assert scaled(1.5, None) == 3.0 == scaled(1.5, names=["a"])
    cases: list[tuple[Any, str]] = [
        (partial(scaled, "1"), "scaled: x cannot be '1' (a number)"),
        (partial(scaled, 1, names="ab"), "scaled: names cannot be 'ab' (a list of texts or None)"),
        (partial(scaled, 1, name="ab"), "scaled: there is no argument 'name' (there are x, by, names)"),
        (lambda: InferenceSession(DIGITS).prepare(3), "InferenceSession.prepare: dims cannot be 3 (a dict)"),
    ]
    for work, text in cases:
        with pytest.raises(InvalidInput) as error:
            work()
        assert str(error.value).partition("\n")[0] == text
    with pytest.raises(TypeError, match=r"scaled: the argument 'x' is missing \(a number\)"):
        scaled()
