"""A text and its caches as a file: what its header says, and whether a generator can read it (docs/use/chat.md).

The file: MAGIC, FORMAT, the CRC-32 of what follows, the length of the header, the header as JSON, the tensors. Numbers
before the header have 4 bytes, the lowest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.runtime.generation import DecoderLayout
from pyruntime.runtime.safetensors import are_counts
from pyruntime.runtime.writing import Sampling

MAGIC = 0x63747970  # "pytc"
FORMAT = 1
HEAD = 16  # bytes before the header
PROBED = 4  # first tokens of a text; what a model computes for them alone tells whether it is the one that saved it
NEAR = 0.05  # processors round differently, and so do products of quantised weights
# Forms of 16-bit floats; in pages, tensors of bfloat16 have the type uint16
HALVES: Mapping[str, Sequence[int]] = {"float16": [1024, 15], "uint16": [128, 127]}
NOTHING = "there is no single text"
DRAFT = "open the generator with the draft that it had when it saved the text, or without one"
NOTHING_HINT = "generate one first, or restore a file; texts that are generated together, or by beams, cannot go on"


@dataclass(eq=False, slots=True)
class SavedTensor:
    """first, last: where its bytes begin and end after the header; probe: what the first tokens alone give"""

    name: str
    dtype: str
    dims: list[int]
    first: int
    last: int
    probe: bool


@dataclass(eq=False, slots=True)
class SavedDecoder:
    """model: its description for messages; cached: tokens whose keys and values are in the tensors"""

    model: str
    cached: list[int]
    tensors: list[SavedTensor]


@dataclass(eq=False, slots=True)
class SavedText:
    """most: tokens of the text at its end; seed: of its random numbers; decoders: the model, and the draft if any

    format: what the text is bound to, as the settings have it; None if it is free"""

    prompt: list[int]
    tokens: list[int]
    stops: list[str]
    seed: int
    most: int
    how: Sampling
    decoders: list[SavedDecoder]
    format: Any = None


def place(decoders: list[SavedDecoder]) -> None:
    """Move the tensors of all decoders one behind the other."""
    end = 0
    for decoder in decoders:
        for x in decoder.tensors:
            x.last += end - x.first
            x.first = end
            end = x.last


def header_of(saved: SavedText) -> Mapping[str, Any]:
    decoders: list[Any] = []
    for decoder in saved.decoders:
        tensors = [[x.name, x.dtype, x.dims, x.first, x.last, x.probe] for x in decoder.tensors]
        entry: Mapping[str, Any] = {"model": decoder.model, "cached": decoder.cached, "tensors": tensors}
        decoders.append(entry)
    how = saved.how
    header: Mapping[str, Any] = {
        "prompt": saved.prompt, "tokens": saved.tokens, "stops": saved.stops, "seed": saved.seed, "most": saved.most,
        "sampling": [how.temperature, how.top_k, how.top_p, how.repetition_penalty], "decoders": decoders,
        "format": saved.format,
    }  # fmt: skip
    return header


def check_head(size: int, words: list[int]) -> None:
    """size: bytes of the file; words: the four numbers that it begins with. Errors: InvalidInput"""
    if size < HEAD or words[0] != MAGIC:
        raise InvalidInput("this is no saved text", hint="save() of a TextGenerator makes one")
    if words[1] != FORMAT:
        text = f"the saved text has format {words[1]}, this version reads {FORMAT}"
        raise InvalidInput(text, hint="generate the text again")


def damaged(text: str) -> InvalidInput:
    return InvalidInput(f"the saved text is damaged or cut off: {text}", hint="generate the text again")


def saved_text(header: Any, size: int) -> SavedText:
    """header: its JSON; size: bytes of the tensors. Errors: InvalidInput"""
    names = ["prompt", "tokens", "stops", "seed", "most", "sampling", "decoders"]
    if not isinstance(header, dict) or any(name not in header for name in names):
        raise damaged("its header lacks a part")
    prompt: Any = header["prompt"]
    tokens: Any = header["tokens"]
    stops: Any = header["stops"]
    seed: Any = header["seed"]
    most: Any = header["most"]
    how: Any = header["sampling"]
    form: Any = header.get("format")
    decoders: Any = header["decoders"]
    are_numbers = are_counts(prompt) and are_counts(tokens) and are_counts([seed, most]) and len(prompt) > 0
    are_lists = isinstance(stops, list) and isinstance(how, list) and isinstance(decoders, list)
    if not are_numbers or not are_lists or len(how) != 4 or not _are_settings(how, stops):
        raise damaged("its settings are no numbers and texts")
    found = [_saved_decoder(decoder, size) for decoder in decoders]
    return SavedText(prompt, tokens, stops, seed, most, Sampling(how[0], how[1], how[2], how[3]), found, form)


def _are_settings(how: Sequence[Any], stops: Sequence[Any]) -> bool:
    numbers = all((isinstance(x, int) or isinstance(x, float)) and not isinstance(x, bool) and x >= 0 for x in how)
    return numbers and are_counts([how[1]]) and how[3] > 0 and all(isinstance(x, str) for x in stops)


def _saved_decoder(entry: Any, size: int) -> SavedDecoder:
    if not isinstance(entry, dict) or any(name not in entry for name in ["model", "cached", "tensors"]):
        raise damaged("a decoder lacks a part")
    model: Any = entry["model"]
    cached: Any = entry["cached"]
    tensors: Any = entry["tensors"]
    if not isinstance(model, str) or not are_counts(cached) or not isinstance(tensors, list):
        raise damaged("a decoder has no tokens and tensors")
    found: list[SavedTensor] = []
    for x in tensors:
        is_known = isinstance(x, list) and len(x) == 6 and isinstance(x[0], str) and isinstance(x[1], str)
        if not is_known or not isinstance(x[5], bool) or not are_counts(x[2]) or not are_counts([x[3], x[4]]):
            raise damaged("a tensor has no type and place")
        if not x[3] <= x[4] <= size:
            raise damaged(f"tensor {x[0]} does not fill its place")
        found.append(SavedTensor(x[0], x[1], x[2], x[3], x[4], x[5]))
    return SavedDecoder(model, cached, found)


def description(graph: str, producer: str, layout: DecoderLayout) -> str:
    """Of a model, for messages: names from its metadata, and its first cache."""
    cache = layout.caches[0]
    dims = ", ".join([f"{dim}" if isinstance(dim, int) else dim if isinstance(dim, str) else "?" for dim in cache.dims])
    name = f'"{graph}"' if producer == "" else f'"{graph}" of {producer}'
    return f"{name} with {len(layout.caches)} caches such as {cache.past} ({dims})"


def check_model(
    saved: SavedDecoder, model: str, layout: DecoderLayout, types: Mapping[str, str], sizes: Mapping[str, int]
) -> None:  # fmt: skip
    """Whether the tensors are caches of a model with this description. types, sizes: by input, its element type and
    the bytes of an element. Errors: InvalidInput"""
    if len(saved.cached) == 0 and len(saved.tensors) == 0:
        return
    caches = layout.caches
    if len(saved.tensors) != 2 * len(caches) or len(saved.cached) == 0:
        raise another_model(saved.model, model)
    for n, x in enumerate(saved.tensors):
        cache = caches[n % len(caches)]
        fits = x.name == cache.past and x.probe == (n >= len(caches)) and len(x.dims) == len(cache.dims)
        if not fits or types[x.name] != x.dtype:
            raise another_model(saved.model, model)
        for axis, dim in enumerate(cache.sizes(1)):
            if x.dims[axis] != dim and axis != cache.axis:
                raise another_model(saved.model, model)
        if prod(x.dims) * sizes[x.name] != x.last - x.first:
            raise damaged(f"tensor {x.name} does not fill its place")


def another_model(saved: str, own: str) -> InvalidInput:
    if saved == own:
        own = "this one has the same description, but computes other keys and values (other weights or adapters)"
    else:
        own = f"this is {own}"
    return InvalidInput(f"the text was saved by another model: {saved}; {own}", hint="open the model that saved it")


def are_near(saved: Sequence[float], own: Sequence[float]) -> bool:
    """Whether two arrays are equal but for rounding."""
    distance = 0.0
    scale = 0.0
    for n in range(len(saved)):
        distance += abs(saved[n] - own[n])
        scale += abs(own[n])
    return len(saved) == len(own) and distance <= NEAR * scale  # not for NaN


def from_halves(bits: Sequence[int], form: Sequence[int]) -> list[float]:
    """16-bit floats. form: the values of a fraction, and the bias of the exponent (IEEE 754)"""
    unit = form[0]
    scale = 1.0
    for _ in range(form[1] - 1):
        scale /= 2
    scales: list[float] = [scale]
    for _ in range(32768 // unit):
        scale *= 2
        scales.append(scale)
    found: list[float] = []
    for word in bits:
        exponent = word % 32768 // unit
        size = word % unit / unit + (1 if exponent > 0 else 0)
        value = size * scales[max(exponent, 1) - 1]
        found.append(-value if word >= 32768 else value)
    return found
