"""python -m bench formats: texts for each schema of JSON Schema's test suite that is known, and the time of a mask.

Tokens are drawn from those that the format allows, without a model: in Python by llguidance, in pages' code in Node.js.
Prints for each how many of the suite's schemas are known, how many texts are complete, how many of them fit, and
milliseconds of processor time of a mask: median, 99th percentile, maximum, and how many take more than one (of these
natively those in which Python collects garbage, in pages nearly all those in which Node.js compiles JavaScript)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import Any

import jsonschema
import numpy as np

from kit import schema_suite
from kit.page_formats import answers, vocabulary
from pyruntime import InvalidInput
from pyruntime.api.text_format import Formats

MOST, TEXTS = 400, 3  # tokens of a text; texts of a schema
TOKENS = 49_152  # of the vocabulary, as SmolLM2's

Found = list[tuple[list[str | None], list[float]] | None]
"""For each schema its texts, None where one is unfinished, and the milliseconds of masks; None if it is refused."""


def does_fit(schema: Any, text: str) -> bool:
    validator = jsonschema.Draft202012Validator(schema)
    return bool(validator.is_valid(json.loads(text)))


def in_pages(schemas: Sequence[Any], count: int, tokens: int = TOKENS) -> Found:
    requests = [
        {"format": {"schema": schema}, "count": count, "seed": n, "most": MOST} for n, schema in enumerate(schemas)
    ]
    found = answers(requests, vocabulary(tokens))
    return [None if "error" in one else (one["texts"], one["milliseconds"]) for one in found]


def natively(schemas: Sequence[Any], count: int, tokens: int = TOKENS) -> Found:
    import tokenizers

    words = vocabulary(tokens)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({word: n for n, word in enumerate(words)}, []))
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    formats, draw = Formats(tokenizer, [], (tokens + 31) // 32), random.Random(1)
    found: Found = []
    for schema in schemas:
        try:
            begin = formats.read({"schema": schema})
        except InvalidInput:
            found.append(None)
            continue
        times: list[float] = []
        found.append(([_written(begin(), tokenizer, draw, times) for _ in range(count)], times))
    return found


def _written(form: Any, tokenizer: Any, draw: random.Random, times: list[float]) -> str | None:
    tokens: list[int] = []
    for _ in range(MOST):
        start = time.thread_time()
        (mask,) = form.masks([])
        times.append(1e3 * (time.thread_time() - start))
        bits = np.unpackbits(np.array(mask, "<i4").view("u1"), bitorder="little")
        tokens.append(int(draw.choice(np.flatnonzero(bits).tolist())))
        if form.take(tokens[-1]):
            return str(tokenizer.decode(tokens))
    return None


def report(name: str, schemas: Sequence[Any], found: Found) -> str:
    known = [(schema, one) for schema, one in zip(schemas, found, strict=True) if one is not None]
    texts = [(schema, text) for schema, (texts, _) in known for text in texts if text is not None]
    fits = sum(does_fit(schema, text) for schema, text in texts)
    times = np.array([x for _, (_, times) in known for x in times])
    count = len({json.dumps(schema) for schema, _ in texts})
    masks = f"median {np.median(times):.3f}, 99 % {np.percentile(times, 99):.2f}, max {times.max():.1f}"
    masks += f", over 1: {(times > 1).sum()} of {len(times)}"
    schemas_known = f"{len(known)} of {len(schemas)} schemas known, {count} with complete texts"
    return f"{name}: {schemas_known}; {fits} of {len(texts)} texts fit; ms a mask: {masks}"


def main(argv: Sequence[str]) -> None:
    schemas = [schema for _, schema in schema_suite.schemas()]
    for name, of in (("pages", in_pages), ("Python", natively)):
        print(report(name, schemas, of(schemas, TEXTS)), flush=True)
