"""Generates text token by token:
`python generate.py model.onnx tokenizer.json "The executor" --temperature 0.8 --top-k 40 --top-p 0.95`.

The model is a decoder as Hugging Face's exporters write it: inputs are `input_ids` and past keys and values, outputs
are `logits` and present ones. The present keys and values of a run are fed to the next without being read, so the KV
cache stays in place and a step writes only the new rows. The session samples the tokens, so logits are not read either.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from pyruntime import InferenceSession, SessionOptions

PAST = "past_key_values"
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class Decoder:
    """One text: a step is fed the new tokens and the KV cache of the last step."""

    def __init__(self, model: str, temperature: float, top_k: int, top_p: float, seed: int | None) -> None:
        self.session = InferenceSession(model, SessionOptions(sample_from="logits"))
        self.binding = self.session.io_binding()
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.random = np.random.default_rng(seed)
        self.length = 0
        self.names, self.pasts = set(), set()
        for x in self.session.get_inputs():
            if x.name.startswith(PAST):  # an empty cache, batch size 1
                self.pasts.add(x.name)
                shape = [d if isinstance(d, int) else int(axis == 0) for axis, d in enumerate(x.shape)]
                self.binding.bind_cpu_input(x.name, np.zeros(shape, TYPES[x.type]))
            else:
                self.names.add(x.name)
        self.sampling = {"temperature": np.float32(temperature), "top_k": np.int64(top_k), "top_p": np.float32(top_p)}
        unknown = self.names - self.feeds([0]).keys()
        if unknown or not self.pasts:
            problem = f"has no input {PAST}…" if not self.pasts else f"needs {', '.join(sorted(unknown))}"
            raise SystemExit(f"{model} {problem}: export it with Hugging Face's optimum, as a decoder with a KV cache")

    def feeds(self, ids: list[int]) -> dict[str, np.ndarray | np.generic]:
        """The inputs of exported decoders besides the KV cache."""
        past, total = self.length, self.length + len(ids)
        return {
            "input_ids": np.array([ids], np.int64),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
            "num_logits_to_keep": np.int64(1),
            "use_cache_branch": np.array([past > 0]),
            "random": self.random.random(1, np.float32),
            **self.sampling,
        }

    def step(self, ids: list[int]) -> int:
        """The next token."""
        feeds = self.feeds(ids)
        for name in self.names:
            self.binding.bind_cpu_input(name, np.asarray(feeds[name]))
        for name in self.outputs:
            self.binding.bind_output(name)
        self.session.run_with_iobinding(self.binding)
        found = dict(zip(self.outputs, self.binding.get_outputs(), strict=True))
        token = int(found.pop("token").numpy()[0])
        self.length += len(ids)
        for name, value in found.items():
            past = name.replace("present", PAST)
            if past in self.pasts:
                self.binding.bind_ortvalue_input(past, value)
        return token


def generate(decoder: Decoder, tokenizer: Tokenizer, ids: list[int], count: int) -> Iterator[str]:
    """The text of each new token, at most `count`, up to a special token."""
    special = {n for n, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    stream = DecodeStream(ids=ids)  # because a token may be a part of a character
    for _ in range(count):
        ids = [decoder.step(ids)]
        if ids[0] in special:
            return
        yield stream.step(tokenizer, ids[0]) or ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tokenizer", help="tokenizer.json")
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=100, help="number of tokens, at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy")
    parser.add_argument("--top-k", type=int, default=0, help="0: off")
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(args.tokenizer)
    decoder = Decoder(args.model, args.temperature, args.top_k, args.top_p, args.seed)
    print(args.prompt, end="", flush=True)
    start = time.perf_counter()
    ids = tokenizer.encode(args.prompt).ids or tokenizer.encode("\n").ids  # starts a paragraph
    count = 0
    for text in generate(decoder, tokenizer, ids, args.tokens):
        print(text, end="", flush=True)
        count += 1
    seconds = time.perf_counter() - start
    print()
    arena = decoder.session.memory().arena
    print(f"{count / seconds:.0f} tokens per second, {arena / 2**20:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
