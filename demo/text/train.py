"""Train the demo's decoder on this project's documentation; writes decoder.onnx and tokenizer.json beside this file.

usage: python -m demo.text.train [--steps 3000]      some minutes on one core
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from demo.text.network import TOKENS, Network, to_onnx

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BATCH, LENGTH = 16, 128


def prose() -> str:
    """Return the text with one paragraph per line, without tables, code and drawings."""
    lines = []
    for path in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        text = re.sub(r"```.*?```|<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.S)
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
        text = "\n".join(line for line in text.split("\n") if not line.startswith(("|", "#", "<", "!", "    ")))
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=- )", text)]
        lines += [part for part in paragraphs if len(part) > 60 and part.isascii()]
    return "\n".join(lines) + "\n"


def learned(text: str) -> Tokenizer:
    """Byte pair encoding of characters; tokens end with a word."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n| ?[^ \n]+| "), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=TOKENS, special_tokens=[], show_progress=False)
    )
    return tokenizer


def train(network: Network, numbers: np.ndarray, steps: int) -> None:
    """Train by Adam on parts of the text, with a learning rate that falls along a cosine."""
    generator = np.random.default_rng(1)
    loss = 0.0
    for step in range(1, steps + 1):
        starts = generator.integers(0, len(numbers) - LENGTH - 1, BATCH)
        batch = numbers[starts[:, None] + np.arange(LENGTH + 1)]
        rate = 4e-3 * min(1, step / 100) * 0.5 * (1 + np.cos(np.pi * step / steps))
        loss += network.learn(batch[:, :-1], batch[:, 1:], rate, step)
        if step % 100 == 0:
            print(f"step {step}: loss {loss / 100:.3f}", flush=True)
            loss = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description="train the text model")
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
    text = prose()
    tokenizer = learned(text)
    numbers = np.array(tokenizer.encode(text).ids)
    print(f"{len(text)} characters, {len(numbers)} tokens")
    network = Network(np.random.default_rng(2))
    train(network, numbers, args.steps)
    (HERE / "decoder.onnx").write_bytes(to_onnx(network))
    tokenizer.save(str(HERE / "tokenizer.json"), pretty=False)


if __name__ == "__main__":
    main()
