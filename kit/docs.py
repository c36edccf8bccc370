"""Code blocks of the documentation, for the tests that run them."""

from __future__ import annotations

import math
import re
import wave
from pathlib import Path
from typing import NamedTuple

import onnx

from kit import gguf_models

ROOT = Path(__file__).parents[1]
FILES = ["README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
MODELS = ROOT / "build/docs-models"  # that examples name besides those of demo/
ENGINEERS = ("docs/adr/", "docs/design/", "docs/architecture.md", "docs/operators.md", "docs/schedules.md")
SOURCES = {
    # a picture's classifier: the mean of each channel, then three classes
    "classifier": """<ir_version: 10, opset_import: ["" : 20]>
        g (float[N, 3, 224, 224] image) => (float[N, 3] logits)
        { pooled = GlobalAveragePool (image)  logits = Flatten (pooled) }""",
    "super": """<ir_version: 10, opset_import: ["" : 20]>
        g (float[N, 3, H, W] image) => (float[N, 3, h, w] larger)
        { twice = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> ()
          larger = Resize <mode = "linear"> (image, , twice) }""",
    "towers": """<ir_version: 10, opset_import: ["" : 20]>
        g (float[N, 3, 224, 224] pixel_values, int64[N, L] input_ids)
        => (float[N, 3] image_embeds, int64[N, 1] text_embeds)
        { pooled = GlobalAveragePool (pixel_values)  image_embeds = Flatten (pooled)
          axes = Constant <value_ints = [1]> ()  text_embeds = ReduceMax (input_ids, axes) }""",
    "loudness": """<ir_version: 10, opset_import: ["" : 20]>
        g (float[N, samples] sound) => (float[N, 1] loudness)
        { axes = Constant <value_ints = [1]> ()  squares = Mul (sound, sound)
          power = ReduceMean (squares, axes)  loudness = Sqrt (power) }""",
    "product": """<ir_version: 10, opset_import: ["" : 20]>
        g (float[N, 64] x, float[64, 32] w) => (float[N, 32] y) { h = MatMul (x, w)  y = Tanh (h) }""",
    # overflows half floats at 300
    "halves": """<ir_version: 10, opset_import: ["" : 20]> g (float16[4] x) => (float16[4] y)
        { squares = Mul (x, x)  y = Sqrt (squares) }""",
    **{
        name: f"""<ir_version: 10, opset_import: ["" : 20, "my.ops" : 1]>
            g (float[N] x) => (float[N] y) {{ y = my.ops.{name.title()} (x) }}"""
        for name in ("halve", "square")
    },
}


class Block(NamedTuple):
    """title: `title="…"` after the language, the file that the block is a part of."""

    file: str
    line: int
    language: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def is_for_users(self) -> bool:
        return self.file != "CONTRIBUTING.md" and not self.file.startswith(ENGINEERS)


def all_blocks() -> list[Block]:
    """The fenced code blocks of all files."""
    found = []
    for file in FILES:
        text = (ROOT / file).read_text()
        for m in re.finditer(r'^```(\w*)(?: title="(.*?)")?\n(.*?)^```$', text, re.MULTILINE | re.DOTALL):
            found.append(Block(file, text[: m.start()].count("\n") + 2, m[1], m[2] or "", m[3]))
    return found


def blocks(language: str) -> list[Block]:
    """The blocks in a language that are no parts of files."""
    return [block for block in all_blocks() if block.language == language and not block.title]


def write_models() -> Path:
    """The folder of the models that examples name, with a sound: a second of 440 Hz."""
    MODELS.mkdir(parents=True, exist_ok=True)
    for name, text in SOURCES.items():
        (MODELS / f"{name}.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    gguf_models.write(MODELS / "chat.gguf", "llama", template="{% for m in messages %}{{ m.content }} {% endfor %}")
    with wave.open(str(MODELS / "sound.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        tone = (round(8000 * math.sin(2 * math.pi * 440 * n / 16000)) for n in range(16000))
        file.writeframes(b"".join(sample.to_bytes(2, "little", signed=True) for sample in tone))
    return MODELS
