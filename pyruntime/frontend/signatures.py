"""Checks a node's inputs and outputs (their number, their types, and which types must be equal) against the schemas of
the standard and of onnxruntime before its lowering runs. Operators of users are not checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyruntime.errors import InvalidModel, ShapeError
from pyruntime.frontend.operator_types import OPERATORS, SETS
from pyruntime.frontend.sequences import Nothing, SequenceValue
from pyruntime.ir.dtype import ALL
from pyruntime.ir.kernel import Tensor

_LETTERS = dict(zip(ALL, "ABCDEFGHIJKLMNOPQRSTUVWXYZab", strict=True))
_NAMES = {letter: d.name for d, letter in _LETTERS.items()} | {"s": "a sequence", "m": "a map"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """An input. variable: the type variable that it shares with other inputs, or ""; types: letters of the allowed
    types; optional: whether it may be absent."""

    variable: str
    types: str
    optional: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """least, most, outputs: numbers of inputs and outputs (None: any)
    parameters: the inputs; the last one applies to all further inputs
    result: letters of the types that an attribute may choose for the first output; "" if none does
    """

    least: int
    most: int | None
    outputs: int | None
    parameters: tuple[Parameter, ...]
    result: str


@cache
def _table() -> dict[tuple[str, ...], str]:
    rows = (line.split(" = ") for line in OPERATORS.split("\n") if line)
    return {tuple(name.split(":")): row for names, row in rows for name in names.split()}


@cache
def signature(domain: str, name: str, opset: int) -> Signature | None:
    """The signature at an opset; None for operators that are neither the standard's nor onnxruntime's."""
    versions = [v.split(":") for v in _table().get((domain, name), "").split()]
    found = [v for v in versions if int(v[0]) <= opset]
    if not found:
        return None
    _, least, most, outputs, parameters, numbers, *result = found[-1]
    sets = SETS.strip("\n").split("\n")
    types = [sets[int(n)] for n in numbers.split(".") if n]
    return Signature(
        int(least), int(most) if most else None, int(outputs) if outputs else None,
        tuple(
            Parameter("" if mark == "+" else letter, types[ord(letter) - ord("a")], mark == "?")
            for letter, mark in re.findall(r"([a-z])([?*+]?)", parameters)
        ),
        "".join(sets[int(n)] for n in result),
    )  # fmt: skip


def check_inputs(found: Signature, names: Sequence[str], args: Sequence[Any], outputs: int, node: str) -> None:
    """Check a node's inputs (args: None if absent; names: their names) against its operator's signature.

    Errors: InvalidModel with the input, its type and the allowed ones."""
    if len(names) < found.least or found.most is not None and len(args) > found.most:
        most = "or more" if found.most is None else f"to {found.most}"
        count = f"{found.least}" if found.least == found.most else f"{found.least} {most}"
        raise InvalidModel(f"takes {count} inputs, has {len(args)}", node=node)
    if found.outputs is not None and outputs > found.outputs:
        raise InvalidModel(f"has at most {found.outputs} outputs, the node names {outputs}", node=node)
    bound: dict[str, tuple[str, Tensor]] = {}
    for n, x in enumerate(args):
        p = found.parameters[min(n, len(found.parameters) - 1)]
        if x is None:
            if not p.optional:
                raise InvalidModel(f"input {n} is required", node=node)
            continue
        _check_type(p, names[n], x, node)
        if isinstance(x, Tensor) and p.variable:
            other, first = bound.setdefault(p.variable, (names[n], x))
            if first.dtype is not x.dtype:
                text = f'inputs "{other}" and "{names[n]}" must have the same type, but are {first.dtype} and {x.dtype}'
                raise InvalidModel(text, node=node)


def check_result(found: Signature, x: Any, node: str) -> None:
    """Check the result type if an attribute chooses it, as for window functions. Errors: InvalidModel."""
    if found.result and isinstance(x, Tensor) and _LETTERS[x.dtype] not in found.result:
        raise InvalidModel(f"cannot give {x.dtype}, allowed is {_listed(found.result)}", node=node)


# The least values of integer attributes with these names, in all operators.
_LEAST = dict.fromkeys(
    """block_size_K blocksize dilations group groups hidden_size kernel_shape max_gram_length min_gram_length num_groups
    num_heads num_outputs num_scan_inputs offset_group output_height output_width pooled_shape q_num_heads size
    strides""".split(), 1,
) | dict.fromkeys(["block_size", "kv_num_heads", "max_skip_count", "sampling_ratio", "sample_size"], 0)  # fmt: skip


# Operators that find out what an attribute of 0 leaves open
_MAY_BE_ZERO = {"RotaryEmbedding": frozenset(["num_heads"])}

# Attributes that must be 0 or 1: runtimes differ in how they read other numbers.
_FLAGS = set(
    """align_corners allowzero antialias broadcast causal ceil_mode center_point_box count_include_pad custom
    detect_negative detect_positive do_rotary early_stopping exclude_outside exclusive fmod input_forget interleaved
    inverse is_bidirectional is_case_sensitive is_causal is_inner_broadcast is_packed_batching is_test keepdims largest
    layout linear_before_reset new_axis noop_with_empty_axes onesided output_qk output_sequence
    past_present_share_buffer periodic reverse rotary_interleaved saturate select_last_index sorted spatial
    storage_order training_mode transA transB transBatchA transBatchB unidirectional upper zeros""".split()
)


def check_attributes(attrs: Mapping[str, object], node: str, op: str) -> None:
    """Check values of integer attributes, such as strides, which must be positive. Errors: ShapeError."""
    for name in attrs.keys() & _FLAGS:
        if attrs[name] not in (0, 1):
            raise ShapeError(f"{name} is {attrs[name]}, must be 0 or 1", node=node)
    for name in attrs.keys() & _LEAST.keys() - _MAY_BE_ZERO.get(op, frozenset()):
        value = attrs[name]
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(n, int) and n < _LEAST[name] for n in numbers):
            text = list(numbers) if isinstance(value, tuple) else value
            raise ShapeError(f"{name} is {text}, must be at least {_LEAST[name]}", node=node)


def _check_type(p: Parameter, name: str, x: Any, node: str) -> None:
    if "o" in p.types:  # an optional, which is represented by its item
        return
    is_ = "an empty optional" if isinstance(x, Nothing) else "a sequence" if isinstance(x, SequenceValue) else ""
    letter = "s" if isinstance(x, SequenceValue) else _LETTERS[x.dtype] if isinstance(x, Tensor) else "?"
    if letter not in p.types:
        raise InvalidModel(f'input "{name}" is {is_ or x.dtype}, allowed is {_listed(p.types)}', node=node)


def _listed(types: str) -> str:
    return ", ".join(_NAMES[c] for c in types)
