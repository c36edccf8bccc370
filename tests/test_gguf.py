"""GGUF files: blocks as `gguf` reads them, decoders as transformers computes them, the same in onnxruntime after a
conversion, tokenizers, and files that must be refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx
import onnxruntime
import pytest
import tokenizers
from onnx import helper, numpy_helper
from safetensors.numpy import load_file

from kit.gguf_logits import OUT, ROWS
from kit.gguf_models import ARCHITECTURES, PIECES, TOKENS, VOCABULARY, write
from pyruntime import InferenceSession, RunOptions, SessionOptions, TextGenerator, TrainingSession
from pyruntime.cli import main
from pyruntime.errors import InvalidInput, InvalidModel, PyRuntimeError
from pyruntime.onnx.gguf_blocks import BLOCKS, NAMES
from pyruntime.runtime.gguf_tokenizer import tokenizer_json

KIND = gguf.GGMLQuantizationType
# by type: places of half floats in a block, which must be finite
HALVES = {2: [0], 3: [0, 2], 6: [0], 7: [0, 2], 8: [0], 10: [80, 82], 11: [108], 12: [0, 2], 13: [0, 2], 14: [208]}


def random_blocks(kind: int, rows: int, count: int) -> np.ndarray:
    """Blocks of any codes, some with scales and minima that are 0 or subnormal halves."""
    rng = np.random.default_rng(kind)
    raw = rng.integers(0, 256, (rows, count, BLOCKS[kind].bytes)).astype(np.uint8)
    for at in HALVES[kind]:
        size = rng.choice([1, 1e-6, 100, 0], (rows, count))
        raw[..., at : at + 2] = (rng.normal(size=size.shape) * size).astype("<f2")[..., None].view(np.uint8)
    return raw


@pytest.mark.parametrize("bits", [0, 8])
@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: NAMES[kind])
def test_blocks(kind: int, bits: int) -> None:
    block = BLOCKS[kind]
    raw = random_blocks(kind, 5, 3)
    columns, width = 3 * block.size, max(bits, block.bits)
    is_symmetric = block.minimum is None and width == block.bits
    parts = ["codes", "scales", *([] if is_symmetric else ["zeros"])]
    sizes = {"K": columns, "N": 5, "bits": width, "block_size": block.group}
    nodes = [
        helper.make_node("Unpack", ["raw"], parts, domain="pyruntime.gguf", kind=kind, bits=width),
        helper.make_node("MatMulNBits", ["x", *parts], ["y"], domain="com.microsoft", **sizes),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, [columns, columns])]
    weights = [numpy_helper.from_array(raw, "raw")]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", 1, None)], weights)
    opsets = [helper.make_opsetid(d, v) for d, v in (("", 21), ("com.microsoft", 1), ("pyruntime.gguf", 1))]
    session = InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    (got,) = session.run(None, {"x": np.eye(columns, dtype=np.float32)})
    want = gguf.quants.dequantize(raw.reshape(5, -1), KIND(kind))
    # A minimum is a zero point of the codes here: the quotient, the difference and the product round, each by half an
    # epsilon of at most the largest minimum, which may be somewhat larger than the largest number.
    error = 0 if block.minimum is None else 4e-7 * float(np.abs(want).max())
    np.testing.assert_allclose(got.T, want, rtol=0, atol=error)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("gguf")


def logits(session: Any, tokens: list[int], at_once: int, stride: int = 1, run: Any = None) -> np.ndarray:
    """Of all tokens: the first ones in one run, then one in each run. stride: between positions; run: its options"""
    caches = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32)
              for i in session.get_inputs() if "past" in i.name}  # fmt: skip
    names = [o.name for o in session.get_outputs()]
    found, begin = [], 0
    for end in range(at_once, len(tokens) + 1):
        places = stride * np.arange(begin, end)[None]
        feeds = {"input_ids": np.array([tokens[begin:end]]), "attention_mask": np.ones((1, end), np.int64)}
        out = dict(zip(names, session.run(names, {**feeds, "position_ids": places, **caches}, run), strict=True))
        caches = {name: out[name.replace("past_key_values", "present")] for name in caches}
        found.append(out["logits"][0])
        begin = end
    return np.concatenate(found)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architectures(architecture: str, folder: Path) -> None:
    path = folder / f"{architecture}.gguf"
    write(path, architecture)
    want = np.load(OUT)[architecture]
    session = InferenceSession(path)
    for at_once in (len(TOKENS), 5):
        np.testing.assert_allclose(logits(session, TOKENS, at_once)[-ROWS:], want, rtol=0, atol=3e-5)


@pytest.mark.parametrize("kind", [KIND.F16, KIND.BF16, KIND.Q4_0, KIND.Q4_1, KIND.Q5_0, KIND.Q5_1, KIND.Q8_0])
def test_types(kind: KIND, folder: Path) -> None:
    """A file of each type computes what a file with the same numbers as float32 does."""
    path, plain = folder / f"{kind.name}.gguf", folder / f"{kind.name}_plain.gguf"
    write(path, "llama", kind)
    numbers = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    write(plain, "llama", numbers=numbers)
    np.testing.assert_allclose(
        logits(InferenceSession(path), TOKENS, 6), logits(InferenceSession(plain), TOKENS, 6), rtol=0, atol=3e-5
    )


@pytest.mark.parametrize(("architecture", "kind"), [("llama", KIND.Q4_1), ("gemma3", KIND.Q8_0), ("phi2", KIND.F32)])
def test_convert(architecture: str, kind: KIND, folder: Path) -> None:
    """onnxruntime runs what `pyruntime convert` writes; it has no operator of this engine."""
    path, out = folder / "model.gguf", folder / "converted" / "model.onnx"
    out.parent.mkdir(exist_ok=True)
    write(path, architecture, kind)
    assert main(["convert", str(path), str(out)]) == 0
    assert {node.domain for node in onnx.load(out).graph.node} <= {"", "com.microsoft"}
    peer = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(logits(InferenceSession(path), TOKENS, 6), logits(peer, TOKENS, 6), rtol=0, atol=3e-5)
    assert (out.parent / "chat_template.jinja").read_text() == "{{ messages[0].content }}"
    assert tokenizers.Tokenizer.from_file(str(out.parent / "tokenizer.json")).encode("b").tokens == ["<s>", "▁b"]


@pytest.mark.parametrize("in_memory", [False, True])
def test_text(folder: Path, in_memory: bool) -> None:
    """A text generator takes the file's own tokenizer, and writes greedily what runs over the whole text give."""
    path = folder / "text.gguf"
    write(path, "qwen2", KIND.Q8_0)
    writer = TextGenerator(path.read_bytes() if in_memory else path)
    found = writer.generate("ab", max_tokens=6)
    session, written = InferenceSession(path), [1, PIECES.index("▁a"), PIECES.index("b")]
    for _ in found.tokens:
        written.append(int(logits(session, written, len(written))[-1].argmax()))
    assert found.tokens == written[3:] and found.text == "".join(PIECES[n] for n in written[3:]).replace("▁", " ")


@pytest.mark.parametrize("as_program", [False, True])
def test_a_text_fills_the_context_of_the_model(folder: Path, as_program: bool) -> None:
    path = folder / "short.gguf"
    write(path, "llama", fields={"context_length": len(TOKENS)})
    if as_program:
        options = SessionOptions(sample_from="logits", sample_positions=1)
        program = InferenceSession(path, options).export(weights=True)
        path.with_suffix(".pyrt").write_bytes(program)
        path = path.with_suffix(".pyrt")
    writer = TextGenerator(path, stop_tokens=[])
    for how in ({}, {"num_beams": 2}):
        for most, count in ((1, 1), (2, 2), (3, 2)):
            found = writer.generate(TOKENS[:-2], max_tokens=most, **how)
            assert len(found.tokens) == count and found.reason == "length"
        with pytest.raises(InvalidInput, match="the prompt has 10 tokens, of the 10 that the model can read"):
            writer.generate(TOKENS, max_tokens=1, **how)
    writer.generate(TOKENS[:-2], max_tokens=1)
    list(writer.resume(5))
    assert len(writer.last.tokens) == 2


TURN = "rope.scaling.type"


@pytest.mark.parametrize(
    ("settings", "stride"),
    [
        ({"fields": {TURN: "linear", "rope.scaling.factor": 2.0}}, 2),
        ({"more": {"rope_freqs.weight": np.full(8, 2)}}, 2),
        ({"more": {"rope_factors_long.weight": np.full(8, 2), "rope_factors_short.weight": np.full(8, 4)},
          "fields": {TURN: "longrope", "rope.scaling.original_context_length": 1}}, 2),
        ({"more": {"rope_factors_long.weight": np.full(8, 4), "rope_factors_short.weight": np.full(8, 2)},
          "fields": {TURN: "longrope", "rope.scaling.original_context_length": 100}}, 2),
    ],
    ids=["linear", "factors", "long", "short"],
)  # fmt: skip
def test_scaled_angles(settings: dict[str, Any], stride: int, folder: Path) -> None:
    """Angles that are divided by a number are those of positions that are multiplied by it."""
    plain, scaled = folder / "plain.gguf", folder / "scaled.gguf"
    write(plain, "llama")
    write(scaled, "llama", **settings)
    np.testing.assert_allclose(
        logits(InferenceSession(scaled), TOKENS, len(TOKENS), stride),
        logits(InferenceSession(plain), TOKENS, len(TOKENS)), rtol=0, atol=3e-5,
    )  # fmt: skip


# ── adapters ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# The names of the modules in transformers, by the names in the file.
LAYER = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}  # fmt: skip


def neighbours(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows as llama.cpp's converter writes them: rotated pairs, apart in transformers, side by side."""
    return w.reshape(heads, 2, -1, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


@pytest.mark.parametrize(("architecture", "kind"), [("llama", KIND.Q4_1), ("llama", KIND.F16), ("qwen2", KIND.Q8_0)])
def test_adapters(architecture: str, kind: KIND, folder: Path) -> None:
    """An adapter learns beside the codes. Its file has transformers' names and order of rows: its products, added to
    the file's numbers, give what a session with the adapter computes, also from the converted model."""
    path, merged, out = folder / "base.gguf", folder / "merged.gguf", folder / "base.onnx"
    write(path, architecture, kind)
    ids = np.array([TOKENS])
    feeds = {"input_ids": ids[:, :-1], "target": ids[:, 1:], "position_ids": np.arange(9)[None],
             "attention_mask": np.ones((1, 9), np.int64)}  # fmt: skip
    with TrainingSession(
        path, loss={"cross_entropy": "logits"}, optimizer={"adam": {"rate": 0.02}}, lora={"rank": 4, "alpha": 8}
    ) as training:
        caches = [f"past_key_values.{n}.{part}" for n in range(3) for part in ("key", "value")]
        feeds |= dict.fromkeys(caches, np.zeros((1, 2, 0, 16), np.float32))
        losses = [training.step(feeds).loss for _ in range(12)]
        assert losses[-1] < losses[0] / 2
        want = training.evaluate(feeds, ["logits"])["logits"][0]
        training.save_adapter(folder / "adapter")
        with pytest.raises(InvalidModel, match="pyruntime convert"):
            training.export()
    learnt = load_file(folder / "adapter/adapter_model.safetensors")
    config = json.loads((folder / "adapter/adapter_config.json").read_text())
    modules = {f"model.layers.{n}.{name}" for n in range(3) for name in LAYER.values()} | {"lm_head"}
    assert {*config["target_modules"]} == modules and (config["r"], config["lora_alpha"]) == (4, 8)
    assert {*learnt} == {f"base_model.model.{m}.lora_{part}.weight" for m in modules for part in "AB"}
    numbers = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    for name in numbers:
        block, _, part = name.removesuffix(".weight").rpartition(".")
        module = (
            f"model.layers.{block[4:]}.{LAYER[part]}" if part in LAYER else "lm_head" if name == "output.weight" else ""
        )
        if module and name.endswith("weight"):
            a, b = (learnt[f"base_model.model.{module}.lora_{x}.weight"] for x in "AB")
            change = 2 * b @ a
            if architecture == "llama" and part in ("attn_q", "attn_k"):
                change = neighbours(change, 4 if part == "attn_q" else 2)
            numbers[name] = numbers[name] + change
    write(merged, architecture, numbers=numbers)
    assert main(["convert", str(path), str(out)]) == 0
    options, run = SessionOptions(), RunOptions()
    options.adapters = {"it": folder / "adapter"}
    run.add_active_adapter("it")
    for found in (
        logits(InferenceSession(merged), TOKENS[:9], 9),
        logits(InferenceSession(path, options), TOKENS[:9], 5, run=run),
        logits(InferenceSession(out, options), TOKENS[:9], 5, run=run),
    ):
        np.testing.assert_allclose(found, want, rtol=0, atol=2e-4)


# ── tokenizers ───────────────────────────────────────────────────────────────────────────────────────────────────────

BYTES = [chr(c) for c in [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324)]]


def encode(metadata: dict[str, Any], text: str) -> list[str]:
    made = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(metadata)))
    assert made.decode(made.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text
    return list(made.encode(text).tokens)


@pytest.mark.parametrize(
    ("pre", "want"),
    [
        ("gpt-2", ["a", "b", "Ġ", "1", "2", "3", "4"]),
        ("smollm", ["a", "b", "Ġ", "1", "2", "3", "4"]),
        ("qwen2", ["a", "b", "Ġ", "1", "2", "3", "4"]),
        ("llama-bpe", ["<s>", "a", "b", "Ġ", "12", "3", "4"]),
    ],
)
def test_byte_pairs(pre: str, want: list[str]) -> None:
    pairs = ["1 2", "12 3", "123 4"] if pre == "gpt-2" else ["1 2", "3 4"]
    tokens = ["<s>", *BYTES, *(pair.replace(" ", "") for pair in pairs)]
    metadata = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": pairs, "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.token_type": [3] + [1] * (len(tokens) - 1),
    }  # fmt: skip
    if pre == "gpt-2":
        want = [*want[:3], "1234"]
    assert encode(metadata, "ab 1234") == want


def test_pieces() -> None:
    """Scores decide which pair is merged first; a character without a piece becomes bytes."""
    tokens = ["<unk>", "<s>", *(f"<0x{n:02X}>" for n in range(256)), "▁", "a", "b", "c", "ab", "bc", "▁a", "▁ab"]
    types = [2, 3] + [6] * 256 + [1] * 8
    metadata = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": [0.0] * 262 + [-3.0, -1.0, -2.0, -4.0], "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip
    assert encode(metadata, "abc é") == ["<s>", "▁a", "bc", "▁", "<0xC3>", "<0xA9>"]
    assert encode({**metadata, "tokenizer.ggml.add_bos_token": False}, "a") == ["▁a"]


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(InvalidModel) as error:
        InferenceSession(path)
    return str(error.value)


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({"architecture": "mamba"}, '"mamba" is not known'),
        ({"fields": {"rope.scaling.type": "yarn"}}, 'rope.scaling.type "yarn"'),
        ({"fields": {"expert_count": 8}}, "experts"),
        ({"fields": {"attention.value_length": 8}}, "different sizes"),
        ({"without": "attention.head_count"}, 'key "llama.attention.head_count" of this GGUF file is missing'),
        ({"fields": {"attention.head_count": 0}}, "is 0, which is no size"),
        ({"fields": {"rope.freq_base": "many"}}, "is no number but str"),
        ({"architecture": "gemma2", "without": "attention.sliding_window"}, "is missing"),
        ({"architecture": "gemma3", "fields": {"attention.sliding_window_pattern": 0}}, "neither a period nor a list"),
        ({"without": "blk.1.ffn_up.weight"}, 'no tensor "blk.1.ffn_up.weight"'),
        (
            {"more": {"blk.0.ffn_gate_inp.weight": np.ones(64)}},
            'tensor "blk.0.ffn_gate_inp.weight" of this GGUF file is not known',
        ),
    ],
)
def test_unknown_contents(settings: dict[str, Any], want: str, folder: Path) -> None:
    path = folder / "unknown.gguf"
    write(path, settings.pop("architecture", "llama"), **settings)
    assert want in refused(path, path.read_bytes())


def test_unknown_forms(folder: Path) -> None:
    path = folder / "forms.gguf"
    write(path, "llama")
    data = path.read_bytes()
    assert "version 1;" in refused(path, data[:4] + struct.pack("<I", 1) + data[8:])
    assert "big-endian" in refused(path, data[:4] + struct.pack(">I", 3) + data[8:])
    place = data.index(b"blk.0.attn_q.weight") + len("blk.0.attn_q.weight") + 4 + 2 * 8
    assert "type IQ4_NL" in refused(path, data[:place] + struct.pack("<I", 20) + data[place + 4 :])
    assert "unknown type 99" in refused(path, data[:place] + struct.pack("<I", 99) + data[place + 4 :])


def test_damaged_files(folder: Path) -> None:
    """Wherever a file ends, and whichever byte of its head is another, errors are typed."""
    path = folder / "damaged.gguf"
    write(path, "llama", KIND.Q4_0)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for end in [*range(4, 40), *rng.integers(40, len(data), 20)]:
        refused(path, data[:end])
    head = data.index(b"blk.2.ffn_down.weight")
    for place, byte in zip(rng.integers(4, head, 150), rng.integers(0, 256, 150), strict=True):
        path.write_bytes(data[:place] + bytes([byte]) + data[place + 1 :])
        try:
            InferenceSession(path).release()
        except PyRuntimeError as error:
            assert type(error).__name__ != "InternalError", (place, byte, error)


def test_vocabulary_is_that_of_the_last_matrix(folder: Path) -> None:
    path = folder / "shape.gguf"
    write(path, "llama")
    assert InferenceSession(path).get_outputs()[0].shape == ["batch", "tokens", VOCABULARY]


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "phi2"])
def test_texts_of_different_lengths_at_once(architecture: str, folder: Path) -> None:
    """GroupQueryAttention's own rule for shorter texts differs from a TextGenerator's, which pads them on the left."""
    path = folder / f"{architecture}_lists.gguf"
    write(path, architecture)
    writer = TextGenerator(path)
    prompts = [TOKENS[:3], TOKENS, TOKENS[4:5]]
    alone = [writer.generate(prompt, max_tokens=10).tokens for prompt in prompts]
    assert [text.tokens for text in writer.generate(prompts, max_tokens=10)] == alone
