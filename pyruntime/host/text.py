"""Functions on strings. Spec: https://onnx.ai/onnx/operators/ (StringNormalizer, StringSplit, RegexFullMatch)"""

from __future__ import annotations

from typing import Any

from pyruntime.host.regex import compiled
from pyruntime.host.table import host_function
from pyruntime.ir.reference import Array


@host_function("string_normalize")
def normalize(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """Drop stop words (compared exactly, or in lower case), then change case. (C) -> (D), (1, C) -> (1, D); if no word
    is left, one empty string."""
    assert args[0] is not None
    shape, words = args[0]
    fold = (lambda w: w) if attrs["case_sensitive"] else str.lower
    stops = {fold(w) for w in attrs["stopwords"]}
    remaining = [w for w in words if fold(w) not in stops] or [""]
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(attrs["action"])
    remaining = [change(w) for w in remaining] if change else remaining
    return [((*shape[:-1], len(remaining)), remaining)]


@host_function("string_split")
def split(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """Substrings along a new last axis, padded with "", and their counts. Without a delimiter, runs of white space
    separate substrings."""
    assert args[0] is not None
    shape, texts = args[0]
    parts = [text.split(attrs["delimiter"] or None, attrs["maxsplit"]) for text in texts]
    most = max(map(len, parts), default=0)
    padded = [word for words in parts for word in [*words, *[""] * (most - len(words))]]
    return [((*shape, most), padded), (shape, [len(words) for words in parts])]


@host_function("regex_full_match")
def full_match(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    assert args[0] is not None
    shape, texts = args[0]
    pattern = compiled(attrs["pattern"])
    return [(shape, [pattern.matches(text) for text in texts])]


@host_function("murmur_hash3")
def murmur_hash3(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """MurmurHash3_x86_32 of each text's bytes. Source: https://github.com/aappleby/smhasher/wiki/MurmurHash3"""
    assert args[0] is not None
    shape, texts = args[0]
    return [(shape, [_murmur(text.encode(), attrs["seed"]) for text in texts])]


def _murmur(data: bytes, seed: int) -> int:
    mask = 0xFFFFFFFF

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> (32 - by)) & mask

    def mixed(word: int) -> int:
        return rotated(word * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask

    whole = len(data) & ~3
    h = seed
    for at in range(0, whole, 4):
        h = (rotated(h ^ mixed(int.from_bytes(data[at : at + 4], "little")), 13) * 5 + 0xE6546B64) & mask
    h ^= mixed(int.from_bytes(data[whole:], "little")) ^ len(data)
    h = (h ^ (h >> 16)) * 0x85EBCA6B & mask
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & mask
    return h ^ (h >> 16)


@host_function("tokenize")
def tokenize(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """Tokens along a new last axis, padded to the longest row; `mark` adds U+0002 before and U+0003 after each row."""
    assert args[0] is not None
    shape, texts = args[0]
    rows = [_tokens(text, attrs) for text in texts]
    if attrs["mark"] and any(rows):
        rows = [["\x02", *row, "\x03"] for row in rows]
    most = max(map(len, rows), default=0)
    return [((*shape, most), [word for row in rows for word in [*row, *[attrs["pad"]] * (most - len(row))]])]


def _tokens(text: str, attrs: dict[str, Any]) -> list[str]:
    if attrs["tokens"] == "." or attrs["separators"] == ("",):
        return list(text)
    if attrs["tokens"] is not None:
        parts = [text[a:b] for a, b in compiled(attrs["tokens"]).find_all(text)]
        return [part for part in parts if len(part) >= attrs["least"]]
    parts = [text]
    for separator in attrs["separators"]:
        pattern = compiled(separator)
        parts = [piece for part in parts for piece in _between(part, list(pattern.find_all(part)))]
        parts = [part for part in parts if len(part) >= attrs["least"]]
    return parts


def _between(text: str, matches: list[tuple[int, int]]) -> list[str]:
    """The parts of a text between matches."""
    starts = [0, *(end for _, end in matches)]
    ends = [*(start for start, _ in matches), len(text)]
    return [text[a:b] for a, b in zip(starts, ends, strict=True)]


@host_function("find_keys")
def find_keys(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """The index of each string among the keys (the last of equal keys), or -1."""
    assert args[0] is not None
    shape, texts = args[0]
    places = _places(attrs["keys"])
    return [(shape, [places.get(text, -1) for text in texts])]


_PLACES: dict[int, tuple[Any, dict[str, int]]] = {}  # by id of the keys, which the entry keeps alive
_MOST_PLACES = 64


def _places(keys: Any) -> dict[str, int]:
    """The index of each key, memoised: a vocabulary of 100,000 words takes 10 ms."""
    found = _PLACES.get(id(keys))
    if found is None:
        if len(_PLACES) >= _MOST_PLACES:
            _PLACES.pop(next(iter(_PLACES)), None)
        found = _PLACES[id(keys)] = keys, {key: n for n, key in enumerate(keys)}
    return found[1]
