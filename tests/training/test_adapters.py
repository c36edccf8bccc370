"""LoRA adapters: trained, exported, saved, and used by sessions of several adapters."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import numpy_helper

import pyruntime
from kit.adapter_networks import LAYERS, WIDTH, Decoder, peft, texts, with_inputs
from kit.training_networks import model, node, random
from pyruntime import InvalidInput, InvalidModel, LoraAdapter, RunOptions, SessionOptions, TrainingSession
from pyruntime.api.names import NAMES
from pyruntime.cli import main
from pyruntime.onnx import load
from pyruntime.program.format import Program
from pyruntime.training.adapters.adapter_file import read_adapter
from pyruntime.training.adapters.sites import Modules, sites
from pyruntime.training.files import onnx_adapter, safetensors
from pyruntime.training.files.onnx_adapter import Versions
from pyruntime.training.files.safetensors import Stored

KINDS = ("float32", "float16", "4 bits")
LOSS = {"cross_entropy": "logits"}


def initializers(data: bytes) -> dict[str, np.ndarray]:
    return {w.name: numpy_helper.to_array(w) for w in onnx.load_from_string(data).graph.initializer}


def stored(tensors: dict[str, np.ndarray]) -> dict[str, Stored]:
    return {n: Stored(x.dtype.name, x.shape, np.ascontiguousarray(x)) for n, x in tensors.items()}


def peft_file(tensors: dict[str, np.ndarray], **config: Any) -> bytes:
    settings = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, **config}
    return safetensors.write(stored(tensors), {"format": "pt", "adapter_config": json.dumps(settings)})


def session(data: bytes, **adapters: Any) -> Any:
    options = SessionOptions()
    options.adapters = adapters
    return pyruntime.InferenceSession(data, options)


def using(*names: Any) -> RunOptions:
    options = RunOptions()
    for name in names:
        options.add_active_adapter(*(name if isinstance(name, tuple) else (name,)))
    return options


# ── training ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_a_decoder_learns_with_adapters(kind: str, tmp_path: Path) -> None:
    """The loss falls, no weight of the model changes, and the merged model, onnxruntime's run of it, and a session that
    takes the adapter compute the same."""
    data, (ids, after) = Decoder(kind).build(), texts()
    lora = {"rank": 4, "alpha": 8, "targets": ["q_proj", "*.v_proj", "*/mlp/*"]}
    with TrainingSession(data, loss=LOSS, optimizer={"adam": {"rate": 0.01}}, lora=lora, seed=1) as training:
        assert len(training.parameters()) == 2 * 4 * LAYERS
        assert all(".lora_" in p.name and p.dtype == "float32" for p in training.parameters())
        first = training.evaluate({"ids": ids, "target": after})["loss"]
        (base,) = pyruntime.InferenceSession(data).run(None, {"ids": ids})
        assert first == pytest.approx(float(loss_of(base, after)), rel=1e-3)  # B begins with zeros
        for _ in range(60):
            training.step({"ids": ids, "target": after})
        found = training.evaluate({"ids": ids, "target": after}, ["logits"])
        assert found["loss"] < first / 4
        merged = training.export(tmp_path / "merged.onnx")
        for name in ("a.safetensors", "a.onnx_adapter", "folder"):
            training.save_adapter(tmp_path / name)
        assert training.adapter() == (tmp_path / "a.safetensors").read_bytes()
    before, now = initializers(data), initializers(merged)
    changed = {n for n, w in before.items() if w.tobytes() != now[n].tobytes()}
    assert len(changed) == (0 if kind == "4 bits" else 4 * LAYERS)
    onnx.checker.check_model(onnx.load_from_string(merged))
    scale, logits = float(np.abs(found["logits"]).max()), found["logits"]
    near = 2e-2 * scale if kind == "float16" else 1e-5 * scale
    for outputs in (
        pyruntime.InferenceSession(merged).run(None, {"ids": ids}),
        onnxruntime.InferenceSession(merged).run(None, {"ids": ids}),
        *[session(data, it=tmp_path / n).run(None, {"ids": ids}, using("it")) for n in
          ("a.safetensors", "a.onnx_adapter", "folder")],
    ):  # fmt: skip
        np.testing.assert_allclose(outputs[0], logits, atol=near)
    assert np.abs(base - logits).max() > 10 * near


def loss_of(logits: np.ndarray, after: np.ndarray) -> Any:
    x = logits.astype(np.float64)
    x = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return -np.take_along_axis(x, after[..., None], -1).mean()


def test_adapters_go_on_from_a_file() -> None:
    data, (ids, after) = Decoder().build(), texts()
    feeds = {"ids": ids, "target": after}
    with TrainingSession(data, loss=LOSS, lora={"targets": "q_proj"}, seed=2) as one:
        for _ in range(3):
            one.step(feeds)
        state, adapter = one.state(), one.adapter()
        curve = [one.step(feeds).loss for _ in range(3)]
    with TrainingSession(data, loss=LOSS, lora={"targets": "q_proj"}, seed=3) as other:
        other.load(adapter)
        assert other.evaluate(feeds)["loss"] == pytest.approx(curve[0], rel=1e-6)
        other.load(state)
        assert [other.step(feeds).loss for _ in range(3)] == curve


def tied() -> bytes:
    """A weight that two modules read, one of them transposed, then a Gemm with a transposed weight and a bias."""
    nodes = [
        node("MatMul", "x tied", "a", name="/first/MatMul"), node("Relu", "a", "b"),
        node("Transpose", "tied", "t", perm=[1, 0]), node("MatMul", "b t", "c", name="/second/MatMul"),
        node("Gemm", "c head.weight head.bias", "y", transB=1, alpha=0.5, name="/head/Gemm"),
    ]  # fmt: skip
    weights = random(1, tied=(6, 8), **{"head.weight": (3, 6), "head.bias": (3,)})
    return model(nodes, {"x": (T.FLOAT, ["N", 6])}, {"y": (T.FLOAT, ["N", 3])}, weights)


def attention() -> bytes:
    """Microsoft's Attention, whose projection is inside the operator, and a FusedMatMul."""
    nodes = [
        node("Attention", "x attn.weight attn.bias", "a", domain="com.microsoft", num_heads=2, name="/attn/Attention"),
        node("FusedMatMul", "a out.weight", "y", domain="com.microsoft", transB=1, name="/out/MatMul"),
    ]
    weights = random(2, **{"attn.weight": (8, 24), "attn.bias": (24,), "out.weight": (5, 8)})
    return model(
        nodes, {"x": (T.FLOAT, ["N", "S", 8])}, {"y": (T.FLOAT, ["N", "S", 5])}, weights, ("com.microsoft",)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "shape", "count"), [(tied(), (4, 6), 3), (attention(), (2, 3, 8), 2)], ids=["tied", "fused"]
)
def test_products_of_all_kinds(data: bytes, shape: tuple[int, ...], count: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    target = rng.normal(size=(*shape[:-1], 3 if count == 3 else 5)).astype(np.float32)
    lora = {"rank": 2, "alpha": 6}
    with TrainingSession(data, loss={"mse": "y"}, optimizer={"adam": {"rate": 0.02}}, lora=lora) as training:
        assert len(training.parameters()) == 2 * count
        losses = [training.step({"x": x, "target": target}).loss for _ in range(40)]
        assert losses[-1] < losses[0] / 2
        wanted = training.evaluate({"x": x}, ["y"])["y"]
        merged = training.export()
        training.save_adapter(tmp_path / "a.safetensors")
    for result in (
        onnxruntime.InferenceSession(merged).run(None, {"x": x}),
        session(data, a=tmp_path / "a.safetensors").run(None, {"x": x}, using("a")),
    ):
        np.testing.assert_allclose(result[0], wanted, atol=1e-5)


def test_named_weights_are_trained_beside_adapters() -> None:
    data, (ids, after) = Decoder().build(), texts()
    options = {"loss": LOSS, "lora": {"targets": "v_proj"}, "trainable": "*.embed_tokens.weight"}
    with TrainingSession(data, **options) as training:
        training.step({"ids": ids, "target": after})
        wanted = training.evaluate({"ids": ids}, ["logits"])["logits"]
        merged = training.export()
    (found,) = onnxruntime.InferenceSession(merged).run(None, {"ids": ids})
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    name = "model.embed_tokens.weight"
    assert (initializers(merged)[name] != initializers(data)[name]).any()


@pytest.mark.parametrize(("lora", "text"), [
    ({"targets": "*.qq_proj"}, 'no product has a name like "*.qq_proj"'),
    ({"targets": ["q_proj", "x"]}, 'no product has a name like "x"'), ({"targets": []}, "lora.targets cannot be"),
    ({"rank": 0}, "lora.rank cannot be 0"), ({"alpha": "a"}, "lora.alpha cannot be 'a'"),
    ({"r": 8}, 'there is no setting of lora "r"'), (8, "lora cannot be 8"),
])  # fmt: skip
def test_bad_options_of_lora(lora: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        TrainingSession(Decoder().build(), loss=LOSS, lora=lora)
    assert text in str(error.value)


# ── inference ───────────────────────────────────────────────────────────────────────────────────────────────────────


def merged_by_hand(data: bytes, adapters: list[tuple[dict[str, np.ndarray], float]]) -> bytes:
    """The float32 decoder with s · (B · A)ᵀ in its weights."""
    proto = onnx.load_from_string(data)
    weights = {w.name: w for w in proto.graph.initializer}
    for n in proto.graph.node:
        for tensors, scale in adapters:
            a = tensors.get(f"base_model.model.{n.name[1:].replace('/', '.').removesuffix('.MatMul')}.lora_A.weight")
            if a is not None:
                b = tensors[f"base_model.model.{n.name[1:].replace('/', '.').removesuffix('.MatMul')}.lora_B.weight"]
                w = weights[n.input[1]]
                w.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(w) + scale * (b @ a).T, w.name))
    return proto.SerializeToString()


def test_several_adapters_in_one_program() -> None:
    """Each adapter, sums with weights, and none: equal to merged models. Nothing is compiled after the first run, and
    switching is fast."""
    data, (ids, _) = Decoder().build(), texts()
    rng = np.random.default_rng(1)
    one, two = peft(rng, 4), peft(rng, 2, layers=1, parts="qkvo")
    both = session(data, one=peft_file(one), two=peft_file(two, lora_alpha=2))
    assert [i.name for i in both.get_inputs()] == ["ids"]
    for options, merged in (
        (None, []), (using("one"), [(one, 2.0)]), (using("two"), [(two, 1.0)]),
        (using(("one", 0.5), ("two", -1)), [(one, 1.0), (two, -1.0)]), (None, []),
        (using(LoraAdapter(peft_file(peft(rng, 7), use_rslora=True))), None),
    ):  # fmt: skip
        start = time.process_time()
        (found,) = both.run(None, {"ids": ids}, options)
        assert time.process_time() - start < 0.5
        if merged is not None:
            (wanted,) = onnxruntime.InferenceSession(merged_by_hand(data, merged)).run(None, {"ids": ids})
            np.testing.assert_allclose(found, wanted, atol=2e-4)
    seen = set()
    for n in range(12):  # adapters that the program drops: others may get their addresses
        (found,) = both.run(None, {"ids": ids}, using(LoraAdapter(peft_file(peft(np.random.default_rng(n), 2)))))
        seen.add(found.tobytes())
    assert len(seen) == 12
    assert both.metrics()["compiled"] == 1
    both.prepare({"N": 2, "T": 4})


def test_batches() -> None:
    """Requests with the same adapters share a run; each request gets what a run of its own returns."""
    data, (ids, _) = Decoder().build(), texts()
    rng = np.random.default_rng(1)
    both = session(data, one=peft_file(peft(rng, 4)), two=peft_file(peft(rng, 2)))
    wanted = [None, using("one"), using(("one", 0.5)), using("two"), using("one"), RunOptions(), using("one", "two")]
    alone = [both.run(None, {"ids": ids[:1]}, options)[0] for options in wanted]
    before = both.metrics()["runs"]
    with pyruntime.Batcher(both, size=4, wait=200) as batcher:
        given = [batcher.submit(None, {"ids": ids[:1]}, options) for options in wanted]
        for options in wanted[1:]:
            if options is not None:
                options.clear_active_adapters()  # requests that wait keep theirs
        for future, expected in zip(given, alone, strict=True):
            np.testing.assert_allclose(future.result()[0], expected, atol=2e-4)
        assert both.metrics()["runs"] - before == 5
        with pytest.raises(InvalidInput, match='no adapter "three"'):
            batcher.run(None, {"ids": ids[:1]}, using("three"))
        with pytest.raises(InvalidInput, match="run_options cannot be"):
            batcher.run(None, {"ids": ids[:1]}, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["float32", "4 bits", "own inputs"])
def test_exported_programs(kind: str, tmp_path: Path) -> None:
    """A file has places for adapters of the modules that it was exported with, whichever these are, and for none."""
    rng, (ids, _) = np.random.default_rng(3), texts()
    if kind == "own inputs":
        data, feeds = with_inputs(), {"x": rng.normal(size=(2, 6)).astype(np.float32)}
        shapes = {"A": (2, 6), "B": (5, 2)}
        name = "base_model.model.layers.0.self_attn.q_proj.lora_{}.weight"
        made = [{name.format(k): rng.normal(size=s).astype(np.float32) for k, s in shapes.items()} for _ in range(2)]
    else:
        data, feeds, made = Decoder(kind).build(), {"ids": ids}, [peft(rng, 4), peft(rng, 2)]
    one, two = (peft_file(tensors, lora_alpha=3) for tensors in made)
    (tmp_path / "model.onnx").write_bytes(data)
    (tmp_path / "one.safetensors").write_bytes(one)
    (tmp_path / "two.safetensors").write_bytes(two)
    model, program = str(tmp_path / "model.onnx"), str(tmp_path / "model.pyrt")
    assert main(["export", model, program, "--weights", "--adapter", str(tmp_path / "one.safetensors")]) == 0
    of_model, of_file = session(data, one=one, two=two), session(program, two=two)
    again = session(of_file.export(weights=True), two=two)
    later = LoraAdapter(tmp_path / "one.safetensors")
    for ours, theirs in (
        ([], []), (["two"], ["two"]), ([("two", 0.5), (later, -1)], [("two", 0.5), ("one", -1)]), ([], []),
    ):  # fmt: skip
        (wanted,) = of_model.run(None, feeds, using(*theirs))
        for exported in (of_file, again):
            (found,) = exported.run(None, feeds, using(*ours))
            np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert [i.name for i in of_file.get_inputs()] == [*feeds]
    (found,) = pyruntime.InferenceSession(program).run(None, feeds)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def rows_outside(places: Any) -> None:
    next(iter(places["modules"].values()))[0][2] += 9999


@pytest.mark.parametrize("change", [
    rows_outside, lambda p: p.pop("slots"), lambda p: p["modules"].update(q=[[0, 1]]), lambda p: p.update(rowsA=9),
    lambda p: p["modules"].update(q=[[0, 1.5, 0, 1]]), lambda p: p["slots"].update(q=["a", "b"]),
    lambda p: p["defaults"].update(q={"dtype": "float32", "dims": [1], "data": "!"}), lambda p: p.update(modules=3),
    lambda p: p.update(rowsA="9"), lambda p: p["slots"].update(q=[[], []]),
    lambda p: p["defaults"].update({"adapters:A": {"dtype": "float32", "dims": [2], "data": "AAAA"}}),
])  # fmt: skip
def test_programs_with_damaged_places(change: Any, places: bytes) -> None:
    program = Program.from_bytes(places)
    change(program.header["types"]["adapters"])
    with pytest.raises(InvalidModel, match="places for adapters"):
        session(program.to_bytes())


@pytest.fixture(scope="module")
def places() -> bytes:
    """A Program with places for adapters."""
    return session(Decoder().build(), a=peft_file(peft(np.random.default_rng(1), 4))).export(weights=True)


def test_programs_without_a_place(places: bytes) -> None:
    rng, plain = np.random.default_rng(1), pyruntime.InferenceSession(Decoder().build()).export(weights=True)
    for program, tensors, text in (
        (plain, peft(rng, 4), "exported without places for adapters"),
        (places, peft(rng, 4, parts="k"), 'no place for "base_model.model.model.layers.0.self_attn.k_proj" of adap'),
        (places, {n: x[:, :3] if "lora_A" in n else x for n, x in peft(rng, 4).items()}, "it is 64 to 64"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as error:
            session(program, a=peft_file(tensors))
        assert text in f"{error.value}"


def test_parts_of_a_fused_projection() -> None:
    """Query, key and value of PEFT, in a model whose exporter made one product of them."""
    (ids, _), tensors = texts(), peft(np.random.default_rng(2), 3, parts="qv")
    fused = Decoder(fused=True).build()
    w = initializers(fused)
    proto = onnx.load_from_string(fused)
    for n in proto.graph.node:
        if "qkv_proj" in n.name:
            layer = n.name.split("layers.")[1][0]
            for first, part in ((0, "q"), (2 * WIDTH, "v")):
                name = f"base_model.model.model.layers.{layer}.self_attn.{part}_proj"
                product = tensors[f"{name}.lora_B.weight"] @ tensors[f"{name}.lora_A.weight"]
                w[n.input[1]] = w[n.input[1]].copy()
                w[n.input[1]][:, first : first + WIDTH] += product.T
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(w[tensor.name], tensor.name))
    (wanted,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"ids": ids})
    (found,) = session(fused, a=peft_file(tensors, r=3, lora_alpha=3)).run(None, {"ids": ids}, using("a"))
    np.testing.assert_allclose(found, wanted, atol=2e-4)


def test_adapter_files_of_onnxruntime(tmp_path: Path) -> None:
    """Its file in both runtimes, with its API; its model with PEFT's file; conversion between them by the command."""
    data, x = with_inputs(), np.random.default_rng(1).normal(size=(2, 6)).astype(np.float32)
    rng = np.random.default_rng(4)
    tensors = {"a": rng.normal(size=(6, 2)).astype(np.float32), "b": rng.normal(size=(2, 5)).astype(np.float32)}
    names = {k: f"layers.0.attn.q_proj.lora_{k.upper()}.MatMul.weight" for k in tensors}
    results = []
    ours = SimpleNamespace(**NAMES)
    for ort, name in ((onnxruntime, "theirs"), (ours, "ours")):
        path = str(tmp_path / f"{name}.onnx_adapter")
        made = ort.AdapterFormat()
        made.set_adapter_version(3)
        made.set_model_version(5)
        made.set_parameters({names[k]: ort.OrtValue.ortvalue_from_numpy(x) for k, x in tensors.items()})
        made.export_adapter(path)
    for ort in (onnxruntime, ours):
        for name in ("theirs", "ours"):
            path = str(tmp_path / f"{name}.onnx_adapter")
            read = ort.AdapterFormat.read_adapter(path)
            assert (read.get_format_version(), read.get_adapter_version(), read.get_model_version()) == (1, 3, 5)
            assert {k: v.numpy().tolist() for k, v in read.get_parameters().items()} == {
                names[k]: v.tolist() for k, v in tensors.items()
            }  # fmt: skip
            adapter = ort.LoraAdapter()
            adapter.Load(path)
            options = ort.RunOptions()
            options.add_active_adapter(adapter)
            runs = ort.InferenceSession(data)
            results.append(runs.run(None, {"x": x}, options)[0])
            np.testing.assert_allclose(runs.run(None, {"x": x})[0], x @ initializers(data)["w"], atol=1e-5)
    for found in results:
        np.testing.assert_allclose(found, x @ initializers(data)["w"] + x @ tensors["a"] @ tensors["b"], atol=1e-5)
    their = {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": tensors["a"].T,
             "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight": tensors["b"].T}  # fmt: skip
    (tmp_path / "peft.safetensors").write_bytes(peft_file(their, r=2, lora_alpha=2))
    (tmp_path / "model.onnx").write_bytes(data)
    made = str(tmp_path / "made.onnx_adapter")
    assert main(["adapters", str(tmp_path / "peft.safetensors"), made, "--model", str(tmp_path / "model.onnx")]) == 0
    for source in (tmp_path / "peft.safetensors", made):
        served = session(data, a=source)
        np.testing.assert_allclose(served.run(None, {"x": x}, using("a"))[0], results[0], atol=1e-5)
        doubled = served.run(None, {"x": x}, using("a", ("a", 1.0)))[0]
        np.testing.assert_allclose(doubled, 2 * results[0] - served.run(None, {"x": x})[0], atol=1e-5)
        assert served.metrics()["compiled"] == 1


# ── files and names ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_in_all_formats(tmp_path: Path, capsys: Any) -> None:
    tensors = peft(np.random.default_rng(1), 4)
    (tmp_path / "a.safetensors").write_bytes(peft_file(tensors))
    for source, out in (("a.safetensors", "b.onnx_adapter"), ("a.safetensors", "folder"), ("folder", "c.safetensors")):
        assert main(["adapters", str(tmp_path / source), str(tmp_path / out)]) == 0
    assert LoraAdapter(tmp_path / "c.safetensors").loaded().config["lora_alpha"] == 8
    (tmp_path / "model.onnx").write_bytes(Decoder().build())
    capsys.readouterr()
    assert main(["adapters", str(tmp_path / "b.onnx_adapter"), "--model", str(tmp_path / "model.onnx")]) == 0
    assert '-> MatMul "/model/layers.0/self_attn/q_proj/MatMul"' in capsys.readouterr().out
    kinds = {n: np.arange(4).astype(n).reshape(2, 2) for n in ("float16", "float64", "int8", "uint16", "int64", "bool")}
    data = onnx_adapter.write({**stored(kinds), "": Stored("bfloat16", (0, 3), b"")}, Versions(-1, 7))
    read, versions = onnx_adapter.read(data)
    assert versions == (-1, 7) and read[""].shape == (0, 3)
    assert all(bytes(read[n].data) == x.tobytes() for n, x in kinds.items())


@pytest.mark.parametrize(("change", "text"), [
    (lambda t: {**t, "x.lora_magnitude_vector": np.ones(3, np.float32)}, "it needs lora_A and lora_B"),
    (lambda t: {**t, "base_model.model.head.weight": np.ones((3, 3), np.float32)}, "merge them into the model"),
    (lambda t: {n: x for n, x in t.items() if "lora_B" not in n}, "it needs lora_A and lora_B"),
    (lambda t: {n.replace("q_proj", "zz_proj"): x for n, x in t.items()}, 'no product for "base_model.model.model.lay'),
    (lambda t: {n: x[:, :5] if "lora_A" in n else x for n, x in t.items()}, "does not fit MatMul"),
    (lambda t: {n: x[..., None, None] for n, x in t.items()}, "does not fit MatMul"),
    (lambda t: {n: x[..., None, None].repeat(2, 3) for n, x in t.items()}, "windows of one number"),
])  # fmt: skip
def test_adapters_that_do_not_fit(change: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        session(Decoder().build(), a=peft_file(change(peft(np.random.default_rng(1), 4))))
    assert text in f"{error.value}"


@pytest.mark.parametrize("config", [
    {"lora_alpha": "x"}, {"lora_alpha": None}, {"lora_alpha": math.nan}, {"alpha_pattern": [1]},
    {"alpha_pattern": {"(": 1}}, {"alpha_pattern": {"q": "x"}},
])  # fmt: skip
def test_damaged_configurations(config: Any) -> None:
    with pytest.raises(InvalidInput, match="alpha"):
        read_adapter(peft_file(peft(np.random.default_rng(1), 4)), json.dumps(config))


def test_the_first_pattern_of_alpha_counts() -> None:
    slow = r"(([a-z]|[a-z_])+)+!"  # a matcher that tries one path after the other does not end
    config = {"lora_alpha": 4, "alpha_pattern": {slow: 2, "q_proj": 8, r"self_attn\.q_proj": 16}}
    pairs = read_adapter(peft_file(peft(np.random.default_rng(1), 4)), json.dumps(config)).pairs()
    assert {p.scale for p in pairs if p.module.endswith("q_proj")} == {2.0}


def test_what_runs_may_not_name() -> None:
    tensors = peft(np.random.default_rng(1), 4)
    runs, (ids, _) = session(Decoder().build(), a=peft_file(tensors)), texts()
    plain = pyruntime.InferenceSession(Decoder().build())
    other = LoraAdapter(peft_file(peft(np.random.default_rng(1), 4, parts="o")))
    for work, text in (
        (lambda: runs.run(None, {"ids": ids}, using("b")), 'the session has no adapter "b"'),
        (lambda: using(("a", float("nan"))), "the weight of an adapter cannot be nan"),
        (lambda: using(3), "an adapter cannot be of type int"), (lambda: using(LoraAdapter()), "call Load(path) first"),
        (lambda: runs.run(None, {"ids": ids}, using(other)), "the session has no place for"),
        (lambda: plain.run(None, {"ids": ids}, using(other)), "the model has no input"),
        (lambda: LoraAdapter(b"nonsense"), "no safetensors file"),
        (lambda: LoraAdapter(b"\0\0\0\0TORT" + bytes(9)), "damaged"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as error:
            work()
        assert text in f"{error.value}", text


@pytest.mark.parametrize(("name", "module", "finds"), [
    ("/model/layers.0/self_attn/q_proj/MatMul", "base_model.model.model.layers.0.self_attn.q_proj", True),
    ("/model/layers.0/attn/q_proj/MatMul_Q4", "base_model.model.model.layers.0.self_attn.q_proj", True),
    ("/transformer/h.0/attn/c_attn/Gemm", "base_model.model.transformer.h.0.attn.c_attn", True),
    ("/layers.0/attn/q_proj/MatMul", "base_model.model.decoder.layers.0.attn.q_proj", True),
    ("/model/layers.1/attn/q_proj/MatMul", "base_model.model.model.layers.0.self_attn.q_proj", False),
    ("/model/layers.10/attn/q_proj/MatMul", "base_model.model.model.layers.0.self_attn.q_proj", False),
    ("/model/layers.0/attn/q_proj/MatMul_quantized", "model.layers.0.attn.q_proj", True),
])  # fmt: skip
def test_names_of_exporters(name: str, module: str, finds: bool) -> None:
    nodes = [node("MatMul", "x w", "y", name=name)]
    data = model(nodes, {"x": (T.FLOAT, ["N", 4])}, {"y": (T.FLOAT, ["N", 6])}, random(0, w=(4, 6)))
    assert bool(Modules(sites(load(data))).parts(module, 6)) == finds
