"""One script for both: what programs written for onnxruntime do besides creating a session and running it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime
from kit.docs import ROOT
from pyruntime import InferenceSession, InvalidInput, RunOptions
from pyruntime.compiler.pipeline import LEVELS
from pyruntime.native import options as compat

DIGITS = str(ROOT / "demo" / "digits" / "digits.onnx")


def script(ort: ModuleType | Any) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.intra_op_num_threads = 1
    assert "CPU" in ort.get_device()
    session = ort.InferenceSession(DIGITS, options, providers=ort.get_available_providers()[-1:])
    (name,) = [x.name for x in session.get_inputs()]
    run = ort.RunOptions()
    run.log_severity_level = 3
    run.logid = "mine"
    run.terminate = False
    run.only_execute_path_to_fetches = True
    run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert run.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    image = np.linspace(0, 1, 784, dtype=np.float32).reshape(1, 1, 28, 28)
    return session.run(None, {name: image}, run)[0]


def test_one_script_for_both() -> None:
    np.testing.assert_allclose(script(pyruntime), script(onnxruntime), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["GraphOptimizationLevel", "ExecutionMode"])
def test_members_are_onnxruntimes(kind: str) -> None:
    assert list(getattr(pyruntime, kind).__members__) == list(getattr(onnxruntime, kind).__members__)


def test_levels_are_the_compilers() -> None:
    assert tuple(pyruntime.GraphOptimizationLevel) == LEVELS


def test_run_options_are_some_of_onnxruntimes_and_defaults_too() -> None:
    ours, theirs = RunOptions(), onnxruntime.RunOptions()
    names = {name for name in dir(ours) if not name.startswith("_")}
    assert names == {name for name in dir(theirs) if not name.startswith("_")} - {"add_active_adapter"}
    for name in names:
        if not callable(getattr(ours, name)):
            assert getattr(ours, name) == getattr(theirs, name), name


def test_what_run_options_cannot_do_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="add_active_adapter"):
        RunOptions().add_active_adapter(None)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="training_mode"):
        RunOptions().training_mode = True  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match='no config entry "none"'):
        RunOptions().get_run_config_entry("none")
    with pytest.raises(InvalidInput, match="run_options cannot be of type dict"):
        InferenceSession(DIGITS).run(None, {}, {"terminate": True})  # type: ignore[arg-type]


def test_providers_that_are_available_can_be_asked_for() -> None:
    import wgpu  # noqa: F401  a dependency of the tests

    assert pyruntime.get_available_providers() == ["webgpu", "wasm"]


def test_the_docs_name_them() -> None:
    text = (ROOT / "docs" / "api.md").read_text().partition("Programs written for onnxruntime also find")[2]
    listed = [
        line.split("`")[1].removesuffix("()")
        for line in text.partition("There is no")[0].splitlines()
        if line[:2] == "- "
    ]
    assert sorted(listed) == sorted(compat.__all__)
