"""Generates text token by token:
`python generate.py model.onnx tokenizer.json "The executor" --temperature 0.8 --top-k 40 --top-p 0.95`.

The model is a decoder with a KV cache, as Hugging Face's exporters write it. With `--draft small.onnx` a smaller model
of the same tokens proposes some tokens at a time, and the model checks them in one run.
"""

import argparse
import sys

from tokenizers import Tokenizer

from pyruntime import InvalidInput, TextGenerator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tokenizer", help="tokenizer.json")
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=100, help="number of tokens, at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy")
    parser.add_argument("--top-k", type=int, default=0, help="0: off")
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--repetition-penalty", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--draft", help="a smaller model with the same tokens")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(args.tokenizer)
    try:
        writer = TextGenerator(args.model, tokenizer, draft=args.draft)
    except InvalidInput as error:
        raise SystemExit(f"{args.model}: {error}") from None
    prompt = tokenizer.encode(args.prompt).ids or tokenizer.encode("\n").ids  # starts a paragraph
    print(args.prompt, end="", flush=True)
    pieces = writer.stream(
        prompt, max_tokens=args.tokens, temperature=args.temperature, top_k=args.top_k, top_p=args.top_p,
        repetition_penalty=args.repetition_penalty, seed=args.seed,
    )  # fmt: skip
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    written = writer.last
    print(f"{len(written.tokens) / written.seconds:.0f} tokens per second", file=sys.stderr)


if __name__ == "__main__":
    main()
