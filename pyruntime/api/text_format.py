"""Texts that are bound to a JSON schema, a regular expression or a grammar. The package llguidance says
which tokens may follow.

Spec: https://github.com/guidance-ai/llguidance/blob/main/docs/json_schema.md (what of JSON Schema it knows)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.arguments import shown
from pyruntime.errors import ExecutionError, InvalidInput, NotSupported
from pyruntime.runtime.grammar import ROOT, Node, read_grammar
from pyruntime.runtime.writing import Format

KINDS = ("schema", "regex", "grammar")
_HINT = "one of schema (of JSON), regex, and grammar (GBNF)"
EXPRESSION = 4096  # classes of characters of a grammar that may be one regular expression
DEPTH = 100  # of such a grammar, because functions call themselves
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class Formats:
    """Reads the formats of texts.

    tokenizer: of the packages tokenizers or transformers; stop_tokens: those that may follow a complete text
    words: of a mask; 0 if the session samples without masks"""

    def __init__(self, tokenizer: Any, stop_tokens: Sequence[int], words: int) -> None:
        self._tokenizer, self._stop_tokens, self._words = tokenizer, stop_tokens, words
        self._tokens: Any = None  # of llguidance

    def read(self, given: Any) -> Callable[[], Format | None]:
        """What begins texts of a format: {"schema": …}, {"regex": …} or {"grammar": …}; None: of any.

        Errors: InvalidInput for a format that is damaged or beyond the library, or a model or tokenizer that does not
        fit; NotSupported without the package llguidance"""
        if given is None:
            return lambda: None
        if not isinstance(given, Mapping) or len(given) != 1 or next(iter(given)) not in KINDS:
            raise InvalidInput(f"format is {shown(given)}", hint=f"a dict with {_HINT}")
        if not self._words:
            hint = "a compiled Program needs sample_masks=True, a model a fixed number of tokens"
            raise InvalidInput("this model cannot be bound to a format: its session has no masks", hint=hint)
        try:
            import llguidance
        except ImportError as e:
            raise NotSupported(
                "the package llguidance is not installed", hint='pip install "pyruntime-onnx[format]"'
            ) from e
        if self._tokens is None:
            wrapped = _Vocabulary(self._tokenizer, self._stop_tokens)
            self._tokens = llguidance.LLTokenizer(wrapped, eos_token=wrapped.stop_tokens)  # type: ignore[arg-type]
        grammar = _grammar(llguidance.LLMatcher, *next(iter(given.items())))
        first = llguidance.LLMatcher(self._tokens, grammar, log_level=0)
        if first.is_error():
            raise InvalidInput(f"the format is refused: {first.get_error()}", hint=_HINT)
        if first.is_accepting() and not _bits(first.deep_copy(), self._words).any():
            raise InvalidInput("the format allows only an empty text", hint=_HINT)
        return lambda: _format(first.deep_copy(), self._words)


def _grammar(library: Any, kind: str, given: Any) -> str:
    """Errors: InvalidInput"""
    try:
        if kind == "schema":
            if not isinstance(given, (Mapping, str, bool)):
                raise TypeError(f"a schema is an object, not {type(given).__name__}")
            schema = json.loads(given) if isinstance(given, str) else given
            return str(library.grammar_from_json_schema(json.dumps({} if schema is True else schema)))
        if not isinstance(given, str):
            raise TypeError(f"a text is expected, not {type(given).__name__}")
        if kind == "regex":
            return str(library.grammar_from_regex(given))
        return str(library.grammar_from_lark(lark(read_grammar(list(given), [ord(c) for c in given]))))
    except InvalidInput:
        raise
    except (TypeError, ValueError, RecursionError) as e:  # the last: parts in one another, too many
        raise InvalidInput(f"the {kind} of the format is refused: {e}", hint=_HINT) from e


def lark(rules: Mapping[str, Node]) -> str:
    """The same grammar in the notation of llguidance. One without recursion is a regular expression, unless it is huge:
    masks then take a 40th to a third of the time, and `[a-z]* "a" [a-z]{99}` is within the library's limits. In others
    each character is a terminal, because its lexer would prefer the longest of several terminals."""
    if _size(rules[ROOT], rules, (ROOT,)) <= EXPRESSION:
        return f"start: /{_expression(rules[ROOT], rules)}/"
    names = {name: "start" if name == ROOT else f"r{n}" for n, name in enumerate(rules)}
    return "\n".join(f"{names[name]}: {_lark(node, names)}" for name, node in rules.items())


def _size(node: Node, rules: Mapping[str, Node], above: tuple[str, ...], depth: int = 0) -> float:
    """The classes of characters if each rule stands where it is named, and repetitions are written out; infinite if a
    rule names itself. above: rules that have the node"""
    if node.rule in above or depth > DEPTH:
        return math.inf
    if node.kind == "rule":
        return _size(rules[node.rule], rules, (*above, node.rule), depth + 1)
    size = 1.0
    for part in node.parts:
        size += _size(part, rules, above, depth + 1)
        if size > EXPRESSION:
            return math.inf
    return size * max(1, node.most, node.least) if node.kind == "repeat" else size


def _expression(node: Node, rules: Mapping[str, Node]) -> str:
    if node.kind == "rule":
        return _expression(rules[node.rule], rules)
    if node.kind == "chars":
        return _class(node)
    parts = [_expression(part, rules) for part in node.parts]
    if node.kind == "repeat":
        return f"(?:{parts[0]}){_times(node)}"
    return "(?:" + ("" if node.kind == "sequence" else "|").join(parts) + ")"


def _class(node: Node) -> str:
    ends = [f"\\u{{{code:x}}}" for code in node.ranges]
    return "[" + "".join(f"{a}-{b}" for a, b in zip(ends[::2], ends[1::2], strict=True)) + "]"


def _times(node: Node) -> str:
    return f"{{{node.least},{node.most if node.most >= 0 else ''}}}"


def _lark(node: Node, names: Mapping[str, str]) -> str:
    if node.kind == "rule":
        return names[node.rule]
    if node.kind == "chars":
        return f"/{_class(node)}/"
    parts = [_lark(part, names) for part in node.parts]
    if node.kind == "repeat":
        return f"({parts[0]}){_times(node)}" if node.most else '""'  # llguidance refuses {0,0}
    return "(" + (" " if node.kind == "sequence" else " | ").join(parts or ['""']) + ")"


def _bits(matcher: Any, words: int) -> Any:
    """The tokens that may follow, as the input `masks` of a session has them."""
    bits = np.frombuffer(matcher.compute_bitmask(), "<i4")[:words]
    return np.pad(bits, (0, words - len(bits)))


def _format(matcher: Any, words: int) -> Format:
    def mask(of: Any) -> Sequence[int]:
        found = _bits(of, words)
        if of.is_error() or not found.any():
            why = of.get_error().partition("\n")[0].replace("NoExtensionBias", "")  # the library's state follows
            raise InvalidInput("no token of this model continues the format" + (f": {why}" if why else ""))
        return list(found.tolist())

    def masks(drafted: list[int]) -> list[Sequence[int]]:
        found, draft = [mask(matcher)], matcher.deep_copy() if drafted else matcher
        for token in drafted:
            if not draft.validate_tokens([token]) or not draft.consume_token(token) or draft.is_stopped():
                break
            found.append(mask(draft))
        return found

    def take(token: int) -> bool:
        if not matcher.validate_tokens([token]) or not matcher.consume_token(token):
            text = f"the model gave token {token}, which the format forbids"
            raise ExecutionError(text, hint="are the scores of all other tokens NaN or -inf?")
        return bool(matcher.is_stopped())

    return Format(masks, take, lambda: _format(matcher.deep_copy(), words))


class _Vocabulary:
    """A tokenizer as llguidance takes it: the bytes of each token.

    Errors: InvalidInput for a tokenizer whose tokens are not known"""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Any, stop_tokens: Sequence[int]) -> None:
        self._tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(self._tokenizer, "to_str"):
            raise InvalidInput("a format needs the tokens of a tokenizer", hint="the path of a tokenizer.json")
        written = json.loads(self._tokenizer.to_str())
        spell = _speller(written.get("decoder") or {})
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        added = {one["id"]: one for one in written["added_tokens"]}
        self.tokens = [b""] * (1 + max(vocabulary.values()))
        for text, token in vocabulary.items():
            self.tokens[token] = text.encode() if token in added else spell(text)
        special = {token for token, one in added.items() if one["special"]}
        self.stop_tokens = [token for token in stop_tokens if token < len(self.tokens)]
        if not self.stop_tokens:  # llguidance needs one, which no model knows
            self.stop_tokens = [len(self.tokens)]
            self.tokens.append(b"")
        self.eos_token_id = self.stop_tokens[0]
        self.special_token_ids = sorted({*special, *self.stop_tokens})

        self._by_bytes = {one: n for n, one in enumerate(self.tokens) if one and n not in self.special_token_ids}
        self._longest = max(map(len, self._by_bytes))

    def __call__(self, text: str | bytes) -> list[int]:
        """The tokens of a part of a text; of its beginning if no token goes on."""
        data = text if isinstance(text, bytes) else text.encode()
        found = list(self._tokenizer.encode(data.decode(errors="replace"), add_special_tokens=False).ids)
        if b"".join(self.tokens[token] for token in found) == data:
            return found
        return self._longest_tokens(data)  # as the tokenizer begins texts with a space

    def _longest_tokens(self, data: bytes) -> list[int]:
        found: list[int] = []
        while data:
            ends = range(min(len(data), self._longest), 0, -1)
            token = next((one for end in ends if (one := data[:end]) in self._by_bytes), b"")
            if not token:
                break
            found.append(self._by_bytes[token])
            data = data[len(token) :]
        return found


def _speller(decoder: Mapping[str, Any]) -> Callable[[str], bytes]:
    """What gives the bytes of a token in the middle of a text. Errors: InvalidInput for decoders of other kinds"""
    steps = decoder["decoders"] if decoder.get("type") == "Sequence" else [decoder] if decoder else []
    kinds = {one["type"]: one for one in steps}
    if unknown := kinds.keys() - {"ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip"}:
        raise InvalidInput(f"a format cannot use a tokenizer with the decoder {', '.join(sorted(unknown))}")
    if "ByteLevel" in kinds:
        table = _byte_level()
        return lambda text: bytes(table[c] for c in text) if all(c in table for c in text) else text.encode()
    swaps = [(one["pattern"].get("String", ""), one["content"]) for one in steps if one["type"] == "Replace"]
    swaps += [(one["replacement"], " ") for one in steps if one["type"] == "Metaspace"]

    def spell(text: str) -> bytes:
        if "ByteFallback" in kinds and (byte := _BYTE.fullmatch(text)):
            return bytes([int(byte[1], 16)])
        for before, after in swaps:
            text = text.replace(before, after) if before else text
        return text.encode()

    return spell


def _byte_level() -> dict[str, int]:
    """GPT-2's characters for bytes: printable ones are themselves, others follow U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + n): byte for n, byte in enumerate(others)}
