"""The tokenizer in a GGUF file's metadata, in the format of tokenizer.json.

Sources: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer (keys), llama.cpp's src/llama-vocab.cpp
(how each kind splits a text), https://huggingface.co/docs/tokenizers/components (the format)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.errors import InvalidModel

NORMAL, CONTROL, USER = 1, 3, 4  # types of tokens
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_DIGITS = {"type": "Digits", "individual_digits": True}


def _words(digits: str) -> list[dict[str, Any]]:
    """Splits into contractions, words with one sign or space before them, digits, signs and spaces. digits: how many
    stay together"""
    parts = [
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[^\r\n\p{L}\p{N}]?\p{L}+", rf"\p{{N}}{digits}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
    ]  # fmt: skip
    split = {"type": "Split", "pattern": {"Regex": "|".join(parts)}, "behavior": "Isolated", "invert": False}
    return [split, {**_BYTES, "use_regex": False}]


# How a text is split before pairs are merged, by the names in `tokenizer.ggml.pre`.
_SPLITS = {
    "default gpt-2 phi-2": [_BYTES],
    "smollm starcoder refact command-r": [_DIGITS, _BYTES],
    "llama-bpe llama3 llama-v3 smaug-bpe": _words("{1,3}"),
    "qwen2 deepseek-r1-qwen": _words(""),
}


def tokenizer_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Errors: InvalidModel for a kind of tokenizer that is not known, which it names, or for keys that contradict each
    other"""
    try:
        return _tokenizer(metadata)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        what = f"the tokenizer of this GGUF file is damaged: {error}"
        raise InvalidModel(what, hint="give a tokenizer.json") from error


def _tokenizer(metadata: Mapping[str, Any]) -> dict[str, Any]:
    ggml = {k.removeprefix("tokenizer.ggml."): v for k, v in metadata.items() if k.startswith("tokenizer.ggml.")}
    kind, tokens = ggml.get("model"), ggml.get("tokens")
    if not isinstance(tokens, list) or kind not in ("gpt2", "llama"):
        what = f'the kind "{kind}" is not known' if tokens else "there is none"
        raise InvalidModel(f"the tokenizer of this GGUF file cannot be read: {what}", hint="give a tokenizer.json")
    types = ggml.get("token_type", [NORMAL] * len(tokens))
    parts = _pieces(ggml, tokens) if kind == "llama" else _byte_pairs(ggml)
    begins = ggml.get("add_bos_token", kind == "llama" or str(ggml.get("pre", "")).startswith("llama"))
    added = [
        {"id": n, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": of_type == CONTROL}
        for n, (token, of_type) in enumerate(zip(tokens, types, strict=True)) if of_type in (CONTROL, USER)
    ]  # fmt: skip
    vocabulary = {token: n for n, token in enumerate(tokens)}
    model = {
        "type": "BPE", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "vocab": vocabulary, **parts.pop("model"),
    }  # fmt: skip
    first = tokens[ggml["bos_token_id"]] if begins and "bos_token_id" in ggml else None
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        **parts, "post_processor": None if first is None else _beginning(first, vocabulary[first]), "model": model,
    }  # fmt: skip


def _byte_pairs(ggml: Mapping[str, Any]) -> dict[str, Any]:
    """Of a vocabulary of bytes and the pairs that are merged, in their order."""
    name = str(ggml.get("pre", "default"))
    split = next((found for names, found in _SPLITS.items() if name in names.split()), None)
    if split is None:
        what = f'tokenizer.ggml.pre "{name}" of this GGUF file is not known'
        raise InvalidModel(what, hint="give a tokenizer.json")
    model = {
        "unk_token": None, "fuse_unk": False, "byte_fallback": False, "merges": ggml.get("merges", []),
        "ignore_merges": name.startswith("llama"),
    }  # fmt: skip
    return {
        "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": split},
        "decoder": _BYTES, "model": model,
    }  # fmt: skip


def _pieces(ggml: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    """Of SentencePiece's vocabulary: a pair is merged before another if what it gives has a higher score. Spaces are
    "▁"; characters that are no token are written as tokens of bytes."""
    places = {token: n for n, token in enumerate(tokens)}
    found: list[tuple[float, int, int, str, str]] = []
    for token, score in zip(tokens, ggml.get("scores", []), strict=True):
        for n in range(1, len(token)):
            left, right = token[:n], token[n:]
            if left in places and right in places:
                found.append((-score, places[left], places[right], left, right))
    unknown = ggml.get("unknown_token_id")
    model = {
        "unk_token": None if unknown is None else tokens[unknown], "fuse_unk": True, "byte_fallback": True,
        "merges": [[left, right] for *_, left, right in sorted(found)],
    }  # fmt: skip
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prefix = [{"type": "Prepend", "prepend": "▁"}] if ggml.get("add_space_prefix", True) else []
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    ]  # fmt: skip
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, space]}, "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders}, "model": model,
    }  # fmt: skip


def _beginning(token: str, number: int) -> dict[str, Any]:
    """A token before each text."""
    special = {"SpecialToken": {"id": token, "type_id": 0}}
    text = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    return {
        "type": "TemplateProcessing", "single": [special, text[0]], "pair": [special, text[0], text[1]],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }  # fmt: skip
