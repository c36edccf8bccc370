"""The tokenizer in a GGUF file's metadata, in the format of tokenizer.json.

Sources: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer (keys), llama.cpp's src/llama-vocab.cpp
(how each kind splits a text), https://huggingface.co/docs/tokenizers/components (the format)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.errors import InvalidModel

CONTROL = 3  # types of tokens
USER = 4
PREFIX = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
HINT = "give a tokenizer.json"
BYTES: Mapping[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS: Mapping[str, Any] = {"type": "Digits", "individual_digits": True}
ONLY_BYTES: Mapping[str, Any] = {**BYTES, "use_regex": False}
SPACE_AS_PIECE: Mapping[str, Any] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PIECE_AS_SPACE: Mapping[str, Any] = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
PREPEND: Mapping[str, Any] = {"type": "Prepend", "prepend": "▁"}
STRIP: Mapping[str, Any] = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
FALLBACK: Mapping[str, Any] = {"type": "ByteFallback"}
FUSE: Mapping[str, Any] = {"type": "Fuse"}
# How a text is split before pairs are merged, by the names in `tokenizer.ggml.pre`.
GPT2 = ["default", "gpt-2", "phi-2"]
DIGIT_BY_DIGIT = ["smollm", "starcoder", "refact", "command-r"]
LLAMA3 = ["llama-bpe", "llama3", "llama-v3", "smaug-bpe"]
QWEN2 = ["qwen2", "deepseek-r1-qwen"]


def tokenizer_json(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Errors: InvalidModel for a kind of tokenizer that is not known, which it names, or for keys that contradict each
    other"""
    kind: Any = metadata.get(f"{PREFIX}model")
    tokens: Any = metadata.get(f"{PREFIX}tokens")
    if not are_texts(tokens) or len(tokens) == 0:
        raise InvalidModel("the tokenizer of this GGUF file cannot be read: there is none", hint=HINT)
    if kind != "gpt2" and kind != "llama":
        what = f'the kind "{kind}" is not known'
        raise InvalidModel(f"the tokenizer of this GGUF file cannot be read: {what}", hint=HINT)
    words: list[str] = tokens
    numbers: dict[str, int] = {}
    for n, word in enumerate(words):
        numbers[word] = n
    is_llama = kind == "llama"
    parts = _pieces(metadata, words, numbers) if is_llama else _byte_pairs(metadata)
    pre: Any = metadata.get(f"{PREFIX}pre", "")
    begins: Any = metadata.get(f"{PREFIX}add_bos_token", is_llama or (isinstance(pre, str) and pre.startswith("llama")))
    first = special_token(metadata, "bos") if begins else ""
    model: Mapping[str, Any] = parts["model"]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": _added(metadata, words),
        "normalizer": parts["normalizer"], "pre_tokenizer": parts["pre_tokenizer"], "decoder": parts["decoder"],
        "post_processor": None if first == "" else _beginning(first, numbers[first]),
        "model": {
            "type": "BPE", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "vocab": numbers, **model,
        },
    }  # fmt: skip


def special_token(metadata: Mapping[str, Any], name: str) -> str:
    """The text of the token that begins ("bos") or ends ("eos") a text, "" if the file names none.

    Errors: InvalidModel"""
    tokens: Any = metadata.get(f"{PREFIX}tokens")
    number: Any = metadata.get(f"{PREFIX}{name}_token_id")
    if number is None or not are_texts(tokens):
        return ""
    words: list[str] = tokens
    if not isinstance(number, int) or number < 0 or number >= len(words):
        raise _damaged(f"{PREFIX}{name}_token_id is {number}")
    return words[number]


def are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(one, str) for one in found)


def _damaged(what: str) -> InvalidModel:
    return InvalidModel(f"the tokenizer of this GGUF file is damaged: {what}", hint=HINT)


def _added(metadata: Mapping[str, Any], words: list[str]) -> list[Mapping[str, Any]]:
    """Tokens that are found in a text before it is split."""
    given: Any = metadata.get(f"{PREFIX}token_type")
    if given is None:
        return []
    types: list[int] = _list(given, len(words), "token_type")
    return [_token(n, words[n], of_type) for n, of_type in enumerate(types) if of_type in (CONTROL, USER)]


def _token(n: int, word: str, of_type: int) -> Mapping[str, Any]:
    return {
        "id": n, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
        "special": of_type == CONTROL,
    }  # fmt: skip


def _list(given: Any, size: int, name: str) -> Any:
    if not isinstance(given, list) or len(given) != size:
        raise _damaged(f"{PREFIX}{name} is no list of {size} elements")
    return given


def _byte_pairs(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a vocabulary of bytes and the pairs that are merged, in their order."""
    pre: Any = metadata.get(f"{PREFIX}pre", "default")
    name: str = pre if isinstance(pre, str) else "of no text"
    merges: Any = metadata.get(f"{PREFIX}merges", [])
    if not are_texts(merges):
        raise _damaged(f"{PREFIX}merges is no list of texts")
    model: Mapping[str, Any] = {
        "unk_token": None, "fuse_unk": False, "byte_fallback": False, "merges": merges,
        "ignore_merges": name.startswith("llama"),
    }  # fmt: skip
    split: Mapping[str, Any] = {"type": "Sequence", "pretokenizers": _split(name)}
    return {"normalizer": None, "pre_tokenizer": split, "decoder": BYTES, "model": model}


def _split(pre: str) -> list[Mapping[str, Any]]:
    if pre in GPT2:
        return [BYTES]
    if pre in DIGIT_BY_DIGIT:
        return [DIGITS, BYTES]
    if pre in LLAMA3:
        return _words("{1,3}")
    if pre in QWEN2:
        return _words("")
    raise InvalidModel(f'{PREFIX}pre "{pre}" of this GGUF file is not known', hint=HINT)


def _words(digits: str) -> list[Mapping[str, Any]]:
    """Splits into contractions, words with one sign or space before them, digits, signs and spaces. digits: how many
    stay together"""
    parts = [
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)", "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", "\\p{N}" + digits,
        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*", "\\s*[\\r\\n]+", "\\s+(?!\\S)", "\\s+",
    ]  # fmt: skip
    pattern: Mapping[str, Any] = {"Regex": "|".join(parts)}
    split: Mapping[str, Any] = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    return [split, ONLY_BYTES]


def _pieces(metadata: Mapping[str, Any], words: list[str], numbers: dict[str, int]) -> Mapping[str, Any]:
    """Of SentencePiece's vocabulary: a pair is merged before another if what it gives has a higher score. Spaces are
    "▁"; characters that are no token are written as tokens of bytes."""
    scores: list[float] = _list(metadata.get(f"{PREFIX}scores"), len(words), "scores")
    found: list[tuple[float, int, int, int]] = []
    for number, word in enumerate(words):
        for n in range(1, len(word)):
            left = numbers.get(word[:n], -1)
            right = numbers.get(word[n:], -1)
            if left >= 0 and right >= 0:
                found.append((-scores[number], left, right, len(found)))
    merges = [[words[left], words[right]] for _, left, right, _ in sorted(found)]
    unknown = special_token(metadata, "unknown")
    model: Mapping[str, Any] = {
        "unk_token": None if unknown == "" else unknown, "fuse_unk": True, "byte_fallback": True, "merges": merges,
    }  # fmt: skip
    has_prefix: Any = metadata.get(f"{PREFIX}add_space_prefix", True)
    normalizers = [PREPEND, SPACE_AS_PIECE] if has_prefix else [SPACE_AS_PIECE]
    decoders = [PIECE_AS_SPACE, FALLBACK, FUSE, STRIP] if has_prefix else [PIECE_AS_SPACE, FALLBACK, FUSE]
    normalizer: Mapping[str, Any] = {"type": "Sequence", "normalizers": normalizers}
    decoder: Mapping[str, Any] = {"type": "Sequence", "decoders": decoders}
    return {"normalizer": normalizer, "pre_tokenizer": None, "decoder": decoder, "model": model}


def _beginning(token: str, number: int) -> Mapping[str, Any]:
    """A token before each text."""
    special: Mapping[str, Any] = {"SpecialToken": {"id": token, "type_id": 0}}
    one: Mapping[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    two: Mapping[str, Any] = {"Sequence": {"id": "B", "type_id": 0}}
    entry: Mapping[str, Any] = {"id": token, "ids": [number], "tokens": [token]}
    return {
        "type": "TemplateProcessing", "single": [special, one], "pair": [special, one, two],
        "special_tokens": {token: entry},
    }  # fmt: skip
