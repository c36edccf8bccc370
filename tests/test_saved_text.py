"""Texts that are saved with their caches, opened by another generator, and go on."""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from kit import zoo
from kit.counting_decoders import cases
from pyruntime import InvalidInput, TextGenerator
from pyruntime.runtime.saved_text import HALVES, are_near, from_halves

TEXT = Path(__file__).parents[1] / "demo/text"
DECODER, TOKENIZER = TEXT / "decoder.onnx", TEXT / "tokenizer.json"
PROMPT = [5, 7, 9, 11, 13, 2, 3] * 6
SAMPLED = {"temperature": 0.9, "top_k": 40, "seed": 3}


def stopped(writer: TextGenerator, prompt: Any, pieces: int, **settings: Any) -> str:
    """The beginning of a text whose caller stops to iterate."""
    stream = writer.stream(prompt, **settings)
    return "".join(next(stream) for _ in range(pieces))


@pytest.mark.parametrize("settings", [{}, SAMPLED, {**SAMPLED, "repetition_penalty": 1.2, "seed": -5}])
def test_a_text_goes_on_in_another_generator(settings: dict[str, Any], tmp_path: Path) -> None:
    writer = TextGenerator(DECODER, TOKENIZER)
    whole = writer.generate("The executor", max_tokens=30, stop=["never"], **settings)
    begun = stopped(writer, "The executor", 6, max_tokens=30, stop=["never"], **settings)
    path = tmp_path / "text"
    path.write_bytes(writer.save())
    for source in (path, path.read_bytes()):
        other = TextGenerator(DECODER, TOKENIZER)
        other.restore(source)
        assert other.last.text.startswith(begun) and 6 <= len(other.last.tokens) < 30
        assert other.last.text + "".join(other.resume()) == whole.text
        assert other.last.tokens == whole.tokens and other.last.reused >= 8
        for again in (other, writer):  # beyond the end, also where it was not saved
            list(again.resume(20))
        assert other.last.tokens[:26] == writer.last.tokens
        assert other.last.tokens[:30] == whole.tokens and len(other.last.tokens) == 50
        chat = [*other._prompts.encoded("The executor"), *other.last.tokens, 5]
        assert other.generate(chat, max_tokens=2).reused > 50
        writer.restore(source)


@pytest.mark.parametrize("name", cases())
def test_caches_of_all_kinds(name: str) -> None:
    """States, windows, element types: against the rule of each decoder."""
    case = cases()[name]
    model = case.model.SerializeToString()
    expected = case.expected([5, 7, 9, 4, 8, 2], 12)
    writer, other = TextGenerator(model), TextGenerator(model)
    writer.generate([5, 7, 9, 4, 8, 2], max_tokens=5)
    other.restore(writer.save())
    list(other.resume(7))
    assert other.last.tokens == expected and other.last.reused == 10
    assert other.generate([5, 7, 9, 3], max_tokens=3).tokens == case.expected([5, 7, 9, 3], 3)


def test_a_draft_is_saved(tmp_path: Path) -> None:
    model = zoo.materialize("llama_mini")
    plain = TextGenerator(model).generate(PROMPT, max_tokens=20, **SAMPLED).tokens
    writer, other = (TextGenerator(model, draft=model) for _ in range(2))
    writer.generate(PROMPT, max_tokens=7, **SAMPLED)
    other.restore(writer.save())
    list(other.resume(13))
    assert other.last.tokens == plain and other.last.accepted > 5
    with pytest.raises(InvalidInput, match="was saved by 2 decoders, this generator has 1"):
        TextGenerator(model).restore(writer.save())


def test_two_thousand_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token is computed again but those that identify the model; a text stays as it is without its caches, too."""
    model = zoo.materialize("llama_mini")
    writer, other = TextGenerator(model), TextGenerator(model)
    prompt = np.random.default_rng(0).integers(0, 4096, 1992).tolist()
    writer.generate(prompt, max_tokens=8)
    data = writer.save()
    read: list[int] = []
    run = type(other._model).run

    def counted(decoder: Any, made: Any, *others: Any) -> list[int]:
        read.append(len(made[0].values))
        return run(decoder, made, *others)

    monkeypatch.setattr(type(other._model), "run", counted)
    start = time.process_time()
    other.restore(data)
    assert time.process_time() - start < 1 and read == [4]
    list(other.resume(2))
    assert read == [4, 1, 1] and len(data) < 4.4e6
    writer.reset()
    other.restore(writer.save())
    list(other.resume(2))
    assert read[3:] == [1999 + 1, 1] and other.last.tokens[:8] == writer.last.tokens


def other_weights(change: float) -> bytes:
    """The decoder with weights that differ by such a part."""
    model, rng = onnx.load(DECODER), np.random.default_rng(0)
    for x in model.graph.initializer:
        array = onnx.numpy_helper.to_array(x)
        if len(x.dims) == 2 and array.dtype.kind == "f":
            noise = 1 + change * rng.standard_normal(array.shape)
            x.CopyFrom(onnx.numpy_helper.from_array((array * noise).astype(array.dtype), x.name))
    return model.SerializeToString()


def with_header(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """The file with another header, and a checksum that fits."""
    size = struct.unpack_from("<I", data, 12)[0]
    header = json.loads(data[16 : 16 + size])
    changed = change(header)
    text = json.dumps(header if changed is None else changed).encode()
    body = text + data[16 + size :]
    return data[:8] + struct.pack("<II", zlib.crc32(body), len(text)) + body


def test_what_is_refused() -> None:
    """A refused file leaves the generator as it was."""
    writer = TextGenerator(DECODER, TOKENIZER)
    with pytest.raises(InvalidInput, match="there is no single text"):
        writer.save()
    with pytest.raises(InvalidInput, match="there is no single text"):
        writer.resume()
    text = writer.generate("The executor", max_tokens=8)
    data = writer.save()
    damaged = {
        "its checksum": [data[:-1], data + b"x", data[:40], data[:700] + b"\0" + data[701:], data[:-9] + b"\7" * 9],
        "no saved text": [b"", data[:15], b"PK" + data[2:], DECODER.read_bytes()],
        "format 2, this version reads 1": [data[:4] + b"\2" + data[5:]],
        "lacks a part": [with_header(data, lambda h: [h]), with_header(data, lambda h: h.pop("seed") and None)],
        "no numbers and texts": [
            with_header(data, lambda h, name=name, value=value: h.update({name: value}))
            for name, value in (
                ("prompt", []), ("tokens", [-1]), ("stops", [3]), ("sampling", [1, 0.5, 1, 1]), ("most", "9")
            )
        ],
        "tensor": [with_header(data, lambda h, n=n, value=value: h["decoders"][0]["tensors"][0].__setitem__(n, value))
                   for n, value in ((2, [1, 4, 99, 16]), (3, 8), (4, 10**9), (2, "x"))],
        "by another model": [with_header(data, lambda h: h["decoders"][0]["tensors"][0].__setitem__(1, "float16")),
                             with_header(data, lambda h: h["decoders"][0]["tensors"].pop() and None)],
    }  # fmt: skip
    for part, files in damaged.items():
        for n, file in enumerate(files):
            with pytest.raises(InvalidInput, match=part):
                writer.restore(file)
            assert writer.last.tokens == text.tokens, (part, n)
    begun = list(writer.resume(2))
    assert writer.last.reused == 11 and begun
    with pytest.raises(InvalidInput, match='another model: "decoder" with 4 caches.*this is "main_graph" of pytorch'):
        TextGenerator(zoo.materialize("llama_mini")).restore(data)
    with pytest.raises(InvalidInput, match="computes other keys and values"):
        TextGenerator(other_weights(0.2)).restore(data)
    TextGenerator(other_weights(0.001)).restore(data)  # as another processor rounds


def test_numbers_of_halves() -> None:
    bits = np.arange(0x7C00, dtype=np.uint16)
    assert from_halves(bits.tolist(), HALVES["float16"]) == bits.view(np.float16).tolist()
    wide = np.arange(0x7F80, dtype=np.uint32)
    assert from_halves(wide.tolist(), HALVES["uint16"]) == (wide << 16).view(np.float32).tolist()
    assert from_halves([0x8000 + 0x3C00], HALVES["float16"]) == [-1.0]
    assert are_near([1, 2], [1, 2.1]) and not are_near([1, 2], [1, 2.5]) and not are_near([float("nan")], [1.0])
