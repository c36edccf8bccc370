"""tests/vectors: results that Python and JavaScript must both compute. Of pyruntime/runtime, they test the
translation."""

from __future__ import annotations

import json
import math
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from kit.docs import ROOT
from pyruntime.api.chat_template import ChatTemplate
from pyruntime.errors import ExecutionError, InvalidInput, PyRuntimeError, ShapeError, UnsupportedOp
from pyruntime.ir.dtype import F32
from pyruntime.native.memory.arrays import flush_subnormals, unpack
from pyruntime.onnx.graph import Graph, TensorType, Value
from pyruntime.program.dims import compile_dim, compile_dims, symbols
from pyruntime.providers.webgpu.wgpu_device import narrow, widen
from pyruntime.runtime import trial
from pyruntime.runtime.arena import Arena
from pyruntime.runtime.explain import explain
from pyruntime.runtime.gguf_tokenizer import tokenizer_json
from pyruntime.runtime.growth import byte_ranges, next_capacity
from pyruntime.runtime.guards import Guards
from pyruntime.runtime.loop_states import stacked_dims
from pyruntime.runtime.order_trial import OrderTrial
from pyruntime.runtime.recovery import Move
from pyruntime.runtime.step_layout import LiveRange, lay_out
from pyruntime.runtime.step_numbers import StepNumbers
from pyruntime.runtime.trained_weights import TrainedWeight, TrainedWeights, go_on_from
from pyruntime.runtime.training_steps import StepRun, TrainingSteps
from pyruntime.training.adapters.adapter_file import Adapter, checked_config
from pyruntime.training.adapters.adapter_inputs import AdapterInputs, in_javascript
from pyruntime.training.files import onnx_adapter, safetensors
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.session.core import number_of

FOLDER = Path(__file__).parent / "vectors"
Case = dict[str, Any]


def dims(case: Case) -> None:
    assert compile_dim(case["dim"])(case["symbols"]) == case["value"]
    assert compile_dims([case["dim"], 1])(case["symbols"]) == (case["value"], 1)
    assert symbols(case["dim"]) == case["symbols"].keys()


def guards(case: Case) -> None:
    found = Guards({"guards": case["guards"], "dims": case.get("dims", []), "symbols": case.get("shown", {})})
    kind = UnsupportedOp if case.get("unsupported") else ShapeError
    assert refusal(kind, lambda: found.bound(case["symbols"], set(case["fresh"]))) == case["refused"]


def refusal(kind: type[PyRuntimeError], work: Callable[[], object]) -> str | None:
    try:
        work()
    except kind as error:
        return str(error)
    return None


def constants(case: Case) -> None:
    packed = np.array(case["packed"], np.uint8)
    got = unpack(packed, case["bits"], case["signed"], len(case["elements"]))
    assert got.view(np.uint8).tolist() == case["elements"]


def flush(case: Case) -> None:
    raw = np.array(case["bytes"], np.uint8)
    flush_subnormals(raw, case["dtype"])
    assert raw.tolist() == case["flushed"]


def int64(case: Case) -> None:
    x = np.array([int(v) for v in case["elements"]], case["dtype"])
    if "refused" in case:
        assert refusal(ExecutionError, lambda: narrow(x)) == case["refused"]
        return
    stored = narrow(x)
    assert stored.view(np.uint32).tolist() == case["stored"]
    assert widen(memoryview(stored), x.dtype, x.size).tolist() == x.tolist()


def layout(case: Case) -> None:
    arena = Arena(0)
    ranges = [LiveRange(*given) for given in case["ranges"]]
    arena.free, arena.end, arena.top = [(a, n) for a, n in case["free"]], case["end"], case["end"]
    lay_out(arena, ranges, case["calls"])
    assert [r.address for r in ranges] == case["addresses"]
    assert arena.top == case["reach"]


def sizes(case: Case) -> None:
    assert Arena(0).round(case["size"]) == case["rounded"]


def explained(case: Case) -> None:
    moved = [Move(**move) for move in case.get("moved", [])]
    assert explain({"explain": case["table"]}, case["symbols"], moved) == case["told"]


def stack(case: Case) -> None:
    given = [tuple(shape) for shape in case["shapes"]], case["rank"], 'Loop "l" (opset 20)'
    if "refused" in case:
        assert refusal(ExecutionError, lambda: stacked_dims(*given)) == case["refused"]
    else:
        assert stacked_dims(*given) == case["stacked"]


def numbers(text: str) -> list[int]:
    """The digits of a text; "1*9" stands for nine of them."""
    words = [word.partition("*") for word in text.split()]
    return [int(digit) for digits, _, count in words for digit in digits * int(count or 1)]


def growth(case: Case) -> None:
    given = case["shape"], case["axis"], case["capacity"], case["item"]
    if "refused" in case:
        assert refusal(ShapeError, lambda: byte_ranges(*given)) == case["refused"]
        return
    found = byte_ranges(*given)
    assert [found.count, found.length, found.stride, found.row] == case["ranges"]
    assert next_capacity(case["least"], found) == case["next"]


def fastest(case: Case) -> None:
    assert trial.fastest(case["costs"], case["gain"]) == case["winner"]


def trials(case: Case) -> None:
    found = trial.Trial(case["candidates"], case["rounds"], case["gain"], case["retry_after"])
    for phase in case["phases"]:
        for expected in numbers(phase["runs"]):
            assert found.current == expected
            found.took(phase["times"][found.current])
        assert found.best == phase["best"]


def order_trials(case: Case) -> None:
    found = OrderTrial()
    for phase in case["phases"]:
        for n, expected in enumerate(numbers(phase["orders"])):
            assert found.order == expected
            read = phase["reads"][n % len(phase["reads"])]
            found.took(read, phase["times"][found.order], phase.get("shared", False))
        assert found.best == phase["best"]


def nan_of(values: list[Any]) -> list[float]:
    return [math.nan if x is None else x for x in values]


def null_of(values: list[Any]) -> list[Any]:
    return [None if x != x else round(x, 12) if isinstance(x, float) else x for x in values]


def step_results(case: Case) -> Iterator[tuple[list[Any], str | None]]:
    """For each call what its runs tell, and the refusal."""
    given = case["settings"], case["schedule"], case["timing"], 7, case["loss_scale"]
    weights = [TrainedWeight(name, [2], "float32") for name in case["weights"]]
    trained = TrainedWeights(weights, len(weights), [], {})
    steps = TrainingSteps(StepNumbers(*given), case["accumulates"], ["target"], ["y"], ["more"], trained)
    for call in case["calls"]:
        told: list[Any] = []

        def make(call: Case = call, told: list[Any] = told) -> None:
            rate, does = call["rate"], call["does"]
            if does in ("freeze", "unfreeze"):
                told.append(trained.freeze(call["names"], does == "freeze"))
                return
            if does == "next":
                told.extend([run.outputs, null_of(run.numbers)] for run in steps.next(rate, call["count"]))
                return
            run: StepRun | None = (
                steps.step(rate) if does == "step"
                else steps.accumulate() if does == "accumulate" else steps.apply(rate, call["sums"])
            )  # fmt: skip
            for values in call["runs"]:
                assert run is not None
                fed, outputs = null_of([*run.numbers, run.applies]), run.outputs
                found = steps.ended(run, nan_of(values))
                r, run = found.result, found.following
                result = null_of([r.loss, r.norm, r.rate, r.step, r.applied])
                told.append([outputs, fed, found.event, found.batch, result, found.warning])
            assert run is None or not call["runs"]

        yield told, refusal(InvalidInput, make)


def training_steps(case: Case) -> None:
    expected = [(call["told"], call["refused"]) for call in case["calls"]]
    assert list(step_results(case)) == expected


def read_file(case: Case) -> tuple[Any, str | None]:
    data, found = b64decode(case["file"]), {}

    def read() -> None:
        tensors, _ = safetensors.read(data) if case["kind"] == "safetensors" else onnx_adapter.read(data)
        found.update({n: [t.dtype, list(t.shape), b64encode(t.data).decode()] for n, t in tensors.items()})

    refused = refusal(InvalidInput, read)
    return None if refused else found, refused


def read_checkpoint(case: Case) -> tuple[Any, str | None]:
    found: list[Any] = []

    def read() -> None:
        tensors, metadata = safetensors.read(b64decode(case["file"]))
        weights = TrainedWeights([TrainedWeight(*w) for w in case["weights"]], case["count"], [], {})
        fitting = weights.fitting({name: list(t.shape) for name, t in tensors.items()})
        n = StepNumbers({}, "constant", {}, 0, case["loss_scale"])
        go_on_from(metadata, n, weights, case["optimizer"], number_of)
        found.extend([[n.step, n.batch, n.waiting, n.good_batches, n.loss_scale, weights.missed], sorted(fitting)])

    refused = refusal(InvalidInput, read)
    return None if refused else found, refused


def training_files(case: Case) -> None:
    if case["kind"] == "checkpoint":
        assert read_checkpoint(case) == (case["numbers"], case["refused"])
    else:
        assert read_file(case) == (case["tensors"], case["refused"])


def adapter_answer(case: Case) -> tuple[Any, str | None]:
    """Where the tensors go, and the refusal."""
    found: dict[str, Any] = {}
    inputs = {name: TensorType(F32, tuple(shape)) for name, shape in case["inputs"].items()}
    graph = Graph("", tuple(Value(n, t) for n, t in inputs.items()), (), ())
    empty = {"dtype": "float32", "dims": [0], "data": ""}
    described = {"rowsA": case["rows"][0], "rowsB": case["rows"][1], "modules": case["modules"], "slots": case["slots"]}
    described["defaults"] = dict.fromkeys(case["defaults"], empty)

    def place() -> None:
        tensors = {name: Stored("float32", tuple(shape), b"") for name, shape in case["shapes"].items()}
        adapter = Adapter(tensors, checked_config(case["config"]))
        found.update(in_javascript(AdapterInputs.from_program(described, graph).places(adapter, "mine")))

    refused = refusal(PyRuntimeError, place)
    return None if refused else found, refused


def adapter_places(case: Case) -> None:
    assert adapter_answer(case) == (case["places"], case["refused"])


def chat_templates(case: Case) -> None:
    template = ChatTemplate({"default": case["template"]}, case["tokens"])
    given = {"add_generation_prompt": case["prompt"], **case["variables"]}
    if case["text"] is not None:
        assert template.render(case["messages"], case["tools"], **given) == case["text"]
        return
    with pytest.raises(InvalidInput, match="the chat template refuses these messages: .*") as error:
        template.render(case["messages"], case["tools"], **given)
    assert "roles" not in case["refused"] or case["refused"] in str(error.value)


def gguf_metadata(case: Case) -> dict[str, Any]:
    is_llama = case["kind"] == "llama"
    codes = [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324)]
    first = [f"<0x{n:02X}>" for n in range(256)] if is_llama else [chr(n) for n in codes]
    letters = [*"abcis123_x"] if is_llama else []
    found = {
        "model": case["kind"], "tokens": ["<s>", "<|end|>", *first, *letters, *case["words"]], "bos_token_id": 0,
        "token_type": [3, 3, *[1] * (256 + len(letters) + len(case["words"]))], **case.get("more", {}),
    }  # fmt: skip
    if is_llama:
        found["scores"] = [0.0] * (258 + len(letters)) + case["scores"]
    else:
        found |= {"pre": case["pre"], "merges": case["merges"]}
    return {f"tokenizer.ggml.{name}": value for name, value in found.items()}


def gguf_tokenizers(case: Case) -> None:
    made = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(gguf_metadata(case))))
    assert made.encode(case["text"]).ids == case["tokens"]
    assert made.decode(case["tokens"], skip_special_tokens=True) == case["decoded"]


CHECKS = {
    "training_steps": training_steps, "training_files": training_files, "adapter_places": adapter_places,
    "dims": dims, "guards": guards, "unpack": constants, "flush": flush, "int64": int64, "layout": layout,
    "sizes": sizes,
    "explain": explained, "stack": stack, "growth": growth, "fastest": fastest, "trial": trials,
    "order_trial": order_trials, "chat_templates": chat_templates, "gguf_tokenizers": gguf_tokenizers,
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_in_python(name: str) -> None:
    for case in json.loads((FOLDER / f"{name}.json").read_text())["cases"]:
        try:
            CHECKS[name](case)
        except Exception as error:
            raise AssertionError(f"{case}: {error}") from error


def test_in_javascript() -> None:
    """By Node's own test runner, as `node --test tests/web` does."""
    command = ["node", "--no-warnings", "--experimental-default-type=module", "--test", "tests/web/vectors.test.mjs"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    assert f"# pass {len(CHECKS)}" in run.stdout


def test_every_file_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == CHECKS.keys()
