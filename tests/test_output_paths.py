"""Runs that ask for some outputs: the results, the feeds that may be missing, and the work that is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit import zoo
from kit.conformance.compare import assert_equal
from kit.side_by_side import fitting, side_by_side
from kit.small_models import towers
from pyruntime import InferenceSession, InvalidInput, OrtValue, SessionOptions
from tests.test_offsets import node, wire


@pytest.mark.parametrize("providers", [["wasm"], ["webgpu"]], ids=" ".join)
@pytest.mark.parametrize("specialised", [False, True], ids=["one program", "programs for values"])
def test_each_part_runs_with_its_own_feeds(providers: list[str], specialised: bool) -> None:
    """Branches, loops, strings, sequences, reads of data."""
    if "webgpu" in providers:
        pytest.importorskip("wgpu")
    probes = [p for p in fitting() if specialised or () in InferenceSession(p.model)._native.executors]
    model, parts = side_by_side(probes)
    session = InferenceSession(model, providers=providers)
    assert (() in session._native.executors) is not specialised
    every = {name: x for part in parts for name, x in part.runs()[0][0].items()}
    whole = session.run(None, every)
    for part in parts:
        near = (part.probe.rtol, part.probe.atol)
        for feeds, wanted in part.runs():
            assert_equal(wanted, session.run(part.outputs, feeds), *near, part.prefix)
            assert_equal(wanted[:1], session.run(part.outputs[:1], every | feeds), *near, part.prefix)
            for name, want in zip(part.outputs, wanted, strict=True):
                assert_equal([want], session.run([name], feeds), *near, name)
        if part.probe.name != "optionals":
            with pytest.raises(InvalidInput, match="is missing"):
                session.run(part.outputs, {})
    assert_equal(whole, session.run(None, every), 0, 0, "all again")


@pytest.mark.parametrize("name", ["gpt2_tiny", "llama_mini.nb4", "whisper_tiny_decoder", "yolo_nms"])
@pytest.mark.parametrize("how", ["model", "program", "threads"])
def test_each_output_of_a_model(name: str, how: str) -> None:
    """Outputs of a step that other outputs need, too; KV caches that grow in place."""
    model, feeds = zoo.materialize(name), zoo.inputs(name)
    options = SessionOptions(intra_op_num_threads=2 if how == "threads" else 0)
    session = InferenceSession(model, options)
    if how == "program":
        session = InferenceSession(session.export(weights=True))
    whole = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    for output, want in whole.items():
        np.testing.assert_array_equal(session.run([output], feeds)[0], want)
        needed = session._native.feeds.needed([output])
        np.testing.assert_array_equal(session.run([output], {n: feeds[n] for n in needed})[0], want)
    for again, want in zip(session.run(None, feeds), whole.values(), strict=True):
        np.testing.assert_array_equal(again, want)


def test_a_decoder_that_is_asked_for_its_caches_alone_between_tokens() -> None:
    """Resident outputs: a run that makes some of them leaves the others as they are."""
    model, feeds = zoo.materialize("gpt2_tiny"), zoo.inputs("gpt2_tiny")
    session, plain = InferenceSession(model), InferenceSession(model)
    outputs = [o.name for o in session.get_outputs()]
    pasts = {o: o.replace("present", "past_key_values") for o in outputs if o.startswith("present")}
    values = {n: OrtValue.ortvalue_from_numpy(x) for n, x in feeds.items()}
    made = dict(zip(outputs, session.run_with_ort_values(None, values), strict=True))
    want = dict(zip(outputs, plain.run(None, feeds), strict=True))
    token = {"input_ids": feeds["input_ids"][:, :1], "position_ids": feeds["position_ids"][:, :1]}
    rows = want["present.0.key"].shape[2]
    token["attention_mask"] = np.ones((len(feeds["input_ids"]), rows + 1), np.int64)
    arrays = token | {pasts[o]: want[o] for o in pasts}
    resident = {n: OrtValue.ortvalue_from_numpy(x) for n, x in token.items()} | {pasts[o]: made[o] for o in pasts}
    some = ["present.0.key", "present.0.value"]
    for names in (some, ["logits"], outputs):
        found = session.run_with_ort_values(names, resident)
        for value, expected in zip(found, plain.run(names, arrays), strict=True):
            np.testing.assert_array_equal(value.numpy(), expected)


def in_node(session: InferenceSession, runs: list[tuple[list[str], dict[str, Any]]], folder: Path) -> list[list[Any]]:
    """The outputs of runs by the executor of pages, in Node.js."""
    (folder / "m.pyrt").write_bytes(session.export(weights=True))
    given = [{"names": names, "feeds": {n: wire(x) for n, x in feeds.items()}} for names, feeds in runs]
    (folder / "runs.json").write_text(json.dumps(given))
    found: list[list[Any]] = node("run_outputs.mjs", folder / "m.pyrt", folder / "runs.json")
    return found


def test_parts_in_javascript(tmp_path: Path) -> None:
    kinds = ("if_", "loop", "scan", "nonzero", "unique", "type_int64", "zero", "softmax")
    model, parts = side_by_side([p for p in fitting() if p.name.startswith(kinds)])
    session = InferenceSession(model)
    runs = [([name], feeds) for part in parts for feeds, _ in part.runs() for name in part.outputs]
    for (names, feeds), found in zip(runs, in_node(session, runs, tmp_path), strict=True):
        wanted = session.run(names, feeds)[0]
        np.testing.assert_allclose(found[0], wanted.ravel().astype(float), rtol=1e-5, atol=1e-6, err_msg=names[0])


def test_a_decoder_in_javascript(tmp_path: Path) -> None:
    """Each output alone, then all again, then each once more: with KV caches in place, and other paths between."""
    feeds = zoo.inputs("gpt2_tiny")
    session = InferenceSession(zoo.materialize("gpt2_tiny"))
    outputs = [o.name for o in session.get_outputs()]
    single = [([name], {n: feeds[n] for n in session._native.feeds.needed([name])}) for name in outputs]
    runs = [*single, (outputs, feeds), *single]
    for (names, given), found in zip(runs, in_node(session, runs, tmp_path), strict=True):
        for numbers, want in zip(found, session.run(names, given), strict=True):
            np.testing.assert_allclose(numbers, want.ravel(), rtol=1e-4, atol=1e-5, err_msg=names[0])


def counted(session: InferenceSession, outputs: list[str]) -> int:
    """The calls that do work for these outputs."""
    path = session._native.latest().loaded.path(outputs)
    return sum(call["work"] != 0 for step, _ in path.steps for call in step.get("calls", ()))


def test_two_towers() -> None:
    session = InferenceSession(towers())
    feeds = {"image": np.ones((3, 64), np.float32), "text": np.ones((2, 32), np.float32)}
    a, b, both = session.run(None, feeds)
    assert counted(session, ["a", "b", "both"]) == counted(session, ["a"]) + counted(session, ["b"]) + 1
    assert counted(session, ["both"]) == counted(session, ["a", "b", "both"])
    weights = session.memory().weights
    np.testing.assert_array_equal(session.run(["a"], {"image": feeds["image"]})[0], a)
    np.testing.assert_array_equal(session.run(["b"], {"text": feeds["text"]})[0], b)
    assert session.memory().weights == weights and len(session._native.executors) == 1
    alone = InferenceSession(towers(), SessionOptions(outputs=["b"]))
    assert [i.name for i in alone.get_inputs()] == ["text"] and [o.name for o in alone.get_outputs()] == ["b"]
    assert alone.memory().weights < weights / 4
    np.testing.assert_array_equal(alone.run(None, feeds)[0], b)  # feeds that it does not need are ignored
    program = InferenceSession(alone.export(weights=True))
    np.testing.assert_allclose(
        program.run(None, feeds)[0], b, rtol=1e-5, atol=1e-6
    )  # without machine code, which fuses
    plain = InferenceSession(towers(), SessionOptions(outputs=["b"], native_code=False))
    np.testing.assert_array_equal(program.run(None, feeds)[0], plain.run(None, feeds)[0])
    with pytest.raises(InvalidInput, match='"a" does not exist'):
        program.run(["a"], feeds)
    with pytest.raises(InvalidInput, match='input "text" is missing'):
        session.run(["both"], {"image": feeds["image"]})


@pytest.mark.parametrize("outputs", [["x"], [], ["a", "a"], "a"])
def test_outputs_that_a_session_cannot_have(outputs: Any) -> None:
    with pytest.raises(InvalidInput, match="outputs cannot be|does not exist"):
        InferenceSession(towers(), SessionOptions(outputs=outputs))
    with pytest.raises(InvalidInput, match="outputs cannot be .* for a compiled Program"):
        InferenceSession(InferenceSession(towers()).export(weights=True), SessionOptions(outputs=["a"]))
