"""Functions on strings. Spec: https://onnx.ai/onnx/operators/ (StringNormalizer, StringSplit, RegexFullMatch)"""

from __future__ import annotations

from typing import Any

from pyruntime.host.regex import compiled
from pyruntime.host.table import host_function
from pyruntime.ir.reference import Array


@host_function("string_normalize")
def normalize(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """Drop stop words (compared as they are, or in lower case), then change case. (C) -> (D), (1, C) -> (1, D); if
    nothing is left, one empty string."""
    assert args[0] is not None
    shape, words = args[0]
    fold = (lambda w: w) if attrs["case_sensitive"] else str.lower
    stops = {fold(w) for w in attrs["stopwords"]}
    kept = [w for w in words if fold(w) not in stops] or [""]
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(attrs["action"])
    kept = [change(w) for w in kept] if change else kept
    return [((*shape[:-1], len(kept)), kept)]


@host_function("string_split")
def split(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """Substrings along a new last axis, padded with "", and their numbers. No delimiter: runs of white space."""
    assert args[0] is not None
    shape, texts = args[0]
    parts = [text.split(attrs["delimiter"] or None, attrs["maxsplit"]) for text in texts]
    most = max(map(len, parts), default=0)
    padded = [word for found in parts for word in [*found, *[""] * (most - len(found))]]
    return [((*shape, most), padded), (shape, [len(found) for found in parts])]


@host_function("regex_full_match")
def full_match(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    assert args[0] is not None
    shape, texts = args[0]
    pattern = compiled(attrs["pattern"])
    return [(shape, [pattern.matches(text) for text in texts])]


@host_function("find_keys")
def find_keys(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """The place of each string among the keys (the last of equal ones), or -1."""
    assert args[0] is not None
    shape, texts = args[0]
    places = {key: n for n, key in enumerate(attrs["keys"])}
    return [(shape, [places.get(text, -1) for text in texts])]
