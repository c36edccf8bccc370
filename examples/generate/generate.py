"""Writes on, piece by piece. `pip install pyruntime[native]`, then
`python generate.py decoder.onnx pieces.json "The executor" --temperature 0.8 --top-k 40 --top-p 0.95`.

The model takes `input_ids` and past keys and values and gives `logits` and present ones, as exporters write decoders.
What a run gives as present goes into the next as past without being read, so it stays where it is: a step copies
nothing but the new keys.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pyruntime import InferenceSession, OrtValue


class Pieces:
    """Text as numbers: characters, of which pairs are merged in the order of a list, within words."""

    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        self.names = table["names"]
        self.numbers = {name: n for n, name in enumerate(self.names)}
        self.ranks = {tuple(pair): n for n, pair in enumerate(table["merges"])}

    def encode(self, text: str) -> list[int]:
        return [self.numbers[part] for word in re.findall(r"\n| ?[^ \n]+| ", text) for part in self.parts(word)]

    def parts(self, word: str) -> list[str]:
        parts = [c for c in word if c in self.numbers]
        while pairs := [pair for pair in pairwise(parts) if pair in self.ranks]:
            n = list(pairwise(parts)).index(min(pairs, key=self.ranks.__getitem__))
            parts[n : n + 2] = [parts[n] + parts[n + 1]]
        return parts


class Decoder:
    """One text: each step is fed what is new, and the caches of the step before."""

    def __init__(self, session: InferenceSession) -> None:
        self.binding = session.io_binding()
        self.session = session
        self.outputs = [o.name for o in session.get_outputs()]
        for x in session.get_inputs():
            if x.name != "input_ids":
                shape = [d if isinstance(d, int) else 0 for d in x.shape]  # nothing is cached yet
                self.binding.bind_cpu_input(x.name, np.zeros(shape, np.float32))

    def step(self, ids: list[int]) -> np.ndarray:
        """The logits of what follows."""
        self.binding.bind_cpu_input("input_ids", np.array([ids], np.int64))
        for name in self.outputs:
            self.binding.bind_output(name)
        self.session.run_with_iobinding(self.binding)
        found: dict[str, OrtValue] = dict(zip(self.outputs, self.binding.get_outputs(), strict=True))
        for name, value in found.items():
            if name != "logits":
                self.binding.bind_ortvalue_input(name.replace("present", "past_key_values"), value)
        return found["logits"].numpy()[0, -1]


def chosen(logits: np.ndarray, args: argparse.Namespace, random: np.random.Generator) -> int:
    """The likeliest at temperature 0; else one at random of the `top_k` likeliest, and of those the fewest that have
    `top_p` of the probability."""
    if args.temperature == 0:
        return int(logits.argmax())
    order = np.argsort(-logits)[: args.top_k or None]
    shares = np.exp((logits[order] - logits[order[0]]) / args.temperature)
    shares /= shares.sum()
    few = int(np.searchsorted(np.cumsum(shares), args.top_p)) + 1
    return int(random.choice(order[:few], p=shares[:few] / shares[:few].sum()))


def written(decoder: Decoder, ids: list[int], args: argparse.Namespace) -> Iterator[int]:
    random = np.random.default_rng(args.seed)
    for _ in range(args.pieces):
        ids = [chosen(decoder.step(ids), args, random)]
        yield ids[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("table")
    parser.add_argument("prompt")
    parser.add_argument("--pieces", type=int, default=100, help="how many to write")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: always the likeliest")
    parser.add_argument("--top-k", type=int, default=0, help="0: all")
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    pieces, decoder = Pieces(args.table), Decoder(InferenceSession(args.model))
    print(args.prompt, end="", flush=True)
    start = time.perf_counter()
    for n in written(decoder, pieces.encode(args.prompt) or pieces.encode("\n"), args):
        print(pieces.names[n], end="", flush=True)
    seconds = time.perf_counter() - start
    print()
    held = decoder.session.memory().arena
    print(f"{args.pieces / seconds:.0f} pieces a second, {held / 2**20:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
