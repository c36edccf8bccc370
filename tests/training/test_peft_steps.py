"""Adapters learn as in PEFT 0.21 (kit/peft_steps.py stored its steps and files): LoRA and DoRA, of products and of
convolutions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T

from kit.adapter_networks import Decoder, peft, texts
from kit.peft_steps import ALPHA, CASES, RANK, RATE, STEPS, VECTORS
from kit.training_networks import model, node, random
from pyruntime import InferenceSession, InvalidInput, LoraAdapter, RunOptions, SessionOptions, TrainingSession
from pyruntime.training.adapters.adapter_file import Adapter, read_adapter
from pyruntime.training.files import safetensors
from pyruntime.training.files.safetensors import Stored

NEAR = {"rtol": 1e-4, "atol": 1e-5}


def vectors(name: str) -> dict[str, Any]:
    with np.load(VECTORS) as data:
        found = {key.partition("/")[2]: data[key] for key in data.files if key.startswith(f"{name}/")}
    return {key: x.tobytes() if x.dtype == np.uint8 else x for key, x in found.items()}


def session(known: dict[str, Any], name: str, **more: Any) -> TrainingSession:
    lora = {"rank": RANK, "alpha": ALPHA, "dora": "DoRA" in name}
    optimizer = {CASES[name].optimizer.lower(): {"rate": RATE}}
    return TrainingSession(known["model"], loss={"mse": "y"}, lora=lora, optimizer=optimizer, **more)


def assert_equal(found: bytes, wanted: bytes) -> None:
    """The tensors of two files, by name, shape and number."""
    one, other = read_adapter(found), read_adapter(wanted)
    assert one.shapes == other.shapes
    for name, t in other.tensors.items():
        np.testing.assert_allclose(numbers(one, name), np.frombuffer(t.data, np.float32), **NEAR, err_msg=name)


def numbers(adapter: Adapter, name: str) -> np.ndarray:
    return np.frombuffer(adapter.tensors[name].data, np.float32)


@pytest.mark.parametrize("name", CASES)
def test_adapters_learn_as_in_peft(name: str) -> None:
    known = vectors(name)
    x, target = known["x"], known["target"]
    with session(known, name) as training:
        own, theirs = read_adapter(training.adapter()), read_adapter(known["start"])
        assert own.config.get("use_dora", False) == json.loads(known["config"])["use_dora"]
        starts_as_the_weight = CASES[name].config.get("init_lora_weights", True)
        for key in (k for k in theirs.tensors if "magnitude" in k and starts_as_the_weight):
            np.testing.assert_allclose(numbers(own, key), numbers(theirs, key), rtol=1e-6)
        training.load(known["start"])
        losses = []
        for n in range(STEPS):
            losses.append(training.step({"x": x, "target": target}).loss)
            if n == 0:
                assert_equal(training.adapter(), known["after 1"])
        np.testing.assert_allclose(losses, known["losses"], rtol=1e-5)
        assert_equal(training.adapter(), known[f"after {STEPS}"])
        merged = training.export()
    np.testing.assert_allclose(onnxruntime.InferenceSession(merged).run(["y"], {"x": x})[0], known["y"], **NEAR)


@pytest.mark.parametrize("name", CASES)
def test_sessions_run_with_files_of_peft(name: str) -> None:
    """Also a Program that was exported from such a session."""
    known, run = vectors(name), RunOptions()
    x, options = known["x"], SessionOptions()
    options.adapters = {"theirs": LoraAdapter(known[f"after {STEPS}"], known["config"])}
    run.add_active_adapter("theirs")
    plain = onnxruntime.InferenceSession(known["model"]).run(None, {"x": x})[0]
    assert np.abs(plain - known["y"]).max() > 0.1
    of_model = InferenceSession(known["model"], options)
    for opened in (of_model, InferenceSession(of_model.export(weights=True), options)):
        np.testing.assert_allclose(opened.run(None, {"x": x}, run)[0], known["y"], **NEAR)
        np.testing.assert_allclose(opened.run(None, {"x": x})[0], plain, **NEAR)


CONVOLUTIONS = vectors("convolutions, DoRA")


def lora(tensors: dict[str, np.ndarray], is_dora: bool = False) -> LoraAdapter:
    """Of DoRA, lengths of 1."""
    seconds = [
        (n.replace("lora_B.weight", "lora_magnitude_vector"), len(x)) for n, x in tensors.items() if "lora_B" in n
    ]
    whole = {**tensors, **({n: np.ones(rows, np.float32) for n, rows in seconds} if is_dora else {})}
    files = {n: Stored("float32", x.shape, np.ascontiguousarray(x)) for n, x in whole.items()}
    return LoraAdapter(safetensors.write(files, {}), json.dumps({"peft_type": "LORA", "use_dora": is_dora}))


def of(model: bytes, *adapters: Any) -> InferenceSession:
    options = SessionOptions()
    options.adapters = {f"{n}": x for n, x in enumerate(adapters)}
    return InferenceSession(model, options)


def run(session: InferenceSession, feeds: dict[str, Any], *names: Any) -> Any:
    options = RunOptions()
    for name in names:
        options.add_active_adapter(name)
    return session.run(None, feeds, options)[0]


def test_adapters_of_dora_beside_others() -> None:
    """A session of both kinds runs each of them; DoRA beside another adapter has no defined result."""
    rng, (ids, _) = np.random.default_rng(0), texts()
    decoder, plain, scaled = Decoder().build(), lora(peft(rng, 3)), lora(peft(rng, 2), True)
    both, alone = of(decoder, plain, scaled), of(decoder, plain)
    for names in ((), ("0",)):
        np.testing.assert_allclose(run(both, {"ids": ids}, *names), run(alone, {"ids": ids}, *names), atol=2e-4)
    wanted = run(of(decoder, scaled), {"ids": ids}, "0")
    np.testing.assert_allclose(run(both, {"ids": ids}, "1"), wanted, atol=2e-4)
    assert np.abs(wanted - run(both, {"ids": ids})).max() > 0.1
    for session, names in ((both, ("0", "1")), (alone, (scaled,))):
        with pytest.raises(InvalidInput, match="DoRA"):
            run(session, {"ids": ids}, *names)


def widened(data: bytes) -> LoraAdapter:
    """The adapter of convolutions, one of which has windows of other sizes."""
    tensors = dict(read_adapter(data).tensors)
    name = next(n for n, t in tensors.items() if t.shape[2:] == (1, 3) and "lora_A" in n)
    tensors[name] = Stored("float32", (*tensors[name].shape[:2], 3, 1), tensors[name].data)
    return LoraAdapter(safetensors.write(tensors, {}))


GROUPED = model(
    [node("Conv", "x a.weight", "h", group=2), node("Conv", "h b.weight", "y")],
    {"x": (T.FLOAT, ["N", 4, 5, 5])}, {"y": (T.FLOAT, ["N", 4, 5, 5])},
    random(0, **{"a.weight": (4, 2, 1, 1), "b.weight": (4, 4, 1, 1)}),
)  # fmt: skip
LOSS = {"loss": {"mse": "y"}}
# what is refused, and a part of the message
REFUSED: list[tuple[Any, str]] = [
    (lambda: of(Decoder("4 bits").build(), lora(peft(np.random.default_rng(0), 2), True)), "DoRA cannot scale"),
    (lambda: TrainingSession(Decoder("4 bits").build(), loss={"cross_entropy": "logits"}, lora={"dora": True}),
     "DoRA cannot scale the weight of"),
    (lambda: of(CONVOLUTIONS["model"], widened(CONVOLUTIONS["start"])), "its filters are [4, 1, 3]"),
    (lambda: TrainingSession(GROUPED, **LOSS, lora={"targets": "a"}), 'no product has a name like "a"'),
    (lambda: TrainingSession(GROUPED, **LOSS, lora={"dora": 1}), "lora.dora cannot be 1"),
]  # fmt: skip


@pytest.mark.parametrize(("work", "text"), REFUSED)
def test_what_dora_and_convolutions_refuse(work: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        work()
    assert text in f"{error.value}"


def test_filters_of_zeros_stay_zeros() -> None:
    """PEFT divides them by their length, 0."""
    weights = random(0, **{"b.weight": (4, 4, 1, 1)})
    weights["b.weight"][1] = 0
    x = random(1, x=(2, 4, 5, 5))["x"]
    data = model([node("Conv", "x b.weight", "y")], {"x": (T.FLOAT, ["N", 4, 5, 5])},
                 {"y": (T.FLOAT, ["N", 4, 5, 5])}, weights)  # fmt: skip
    with TrainingSession(data, **LOSS, lora={"dora": True}) as training:
        training.step({"x": x, "target": x})
        assert not training.evaluate({"x": x}, ["y"])["y"][:, 1].any()
        adapter = read_adapter(training.adapter())
    assert all(np.isfinite(numbers(adapter, n)).all() for n in adapter.tensors)
