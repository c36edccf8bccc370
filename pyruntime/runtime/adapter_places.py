"""Which tensors of a LoRA belong together, and where in the inputs of a graph their numbers go.

A run feeds two matrices: the A of all modules as rows below one another, transposed, and the B likewise. Their columns
are the ranks of the adapters that are active in this run, side by side. Filters count as rows. A graph for adapters of
DoRA also takes their magnitudes, one for each row of B."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, TypeAlias

from pyruntime.errors import InvalidInput
from pyruntime.runtime.adapter_config import DEFAULT_ALPHA
from pyruntime.runtime.safetensors import are_counts
from pyruntime.runtime.trained_weights import shape_text

ALL_A = "adapters:A"
ALL_B = "adapters:B"
ALL_MAGNITUDES = "adapters:magnitudes"
NO_MAGNITUDE = 3e38  # of rows that no adapter of DoRA scales
PREFIX = "base_model.model."  # PEFT's, before the names of modules
Shapes: TypeAlias = dict[str, Sequence[int]]
Declared: TypeAlias = dict[str, Sequence[int | str | None]]
Rows: TypeAlias = Callable[["Pair"], Sequence[Sequence[int]]]  # first and number in ALL_A, first and number in ALL_B
Slots: TypeAlias = Mapping[str, Sequence[str]]  # by module, the names of inputs for its A and its B
# ends of the names of A, of B and of DoRA's magnitudes
MARKS: dict[str, list[str]] = {
    "a": ["lora_A", "lora.A", "lora_down", "lora.down"],
    "b": ["lora_B", "lora.B", "lora_up", "lora.up"],
    "magnitudes": ["lora_magnitude_vector"],
}
# last parts of names that say what a node or tensor is, not where it is; they may follow "fused"
KINDS = ["matmul", "matmulnbits", "matmulbnb4", "gemm", "weight", "kernel", "qweight"]
WRAPPERS = ["base_model", "model", "module", "_orig_mod"]
SAME: dict[str, str] = {"self_attn": "attn", "self_attention": "attn", "attention": "attn"}  # exporters rename it


@dataclass(eq=False, slots=True)
class Pair:
    """Of one module the names of A and B, the factor of their product, and the name of DoRA's magnitudes, or ""."""

    module: str
    a: str
    b: str
    scale: float
    magnitudes: str


@dataclass(eq=False, slots=True)
class Entry:
    """Where a pair goes: A, element (row, rank), to row first_a + row; B to first_b + row. rows_a, rows_b: numbers of
    rows; is_peft: whether A is (rank, rows) and B (rows, rank), else the other way round; scale: of B; magnitudes: name
    of DoRA's, as the rows of B, or "" """

    a: str
    b: str
    first_a: int
    first_b: int
    rows_a: int
    rows_b: int
    rank: int
    is_peft: bool
    scale: float
    magnitudes: str


@dataclass(eq=False, slots=True)
class Fed:
    """A tensor that is fed to an input of the model. axis: of the rank, along which several adapters are joined (-1:
    only one may be active); is_transposed: whether the tensor is the transpose of what the input takes"""

    input: str
    tensor: str
    axis: int
    is_transposed: bool
    scale: float


@dataclass(eq=False, slots=True)
class Places:
    """Where the tensors of an adapter go."""

    entries: list[Entry]
    fed: list[Fed]


def rank_of(entries: list[Entry]) -> int:
    """The columns of ALL_A and ALL_B that an adapter needs."""
    return max([entry.rank for entry in entries], default=0)


# ── the modules of an adapter ──


def module_and_part(name: str) -> list[str]:
    """The module of a tensor, and "a", "b" or "magnitudes"; empty for a tensor that is none of a LoRA. Names are as
    `base_model.model.layers.0.q_proj.lora_A.weight`, or with the adapter's name after the part: `lora_A.default`."""
    text = name[0 : len(name) - 7] if name.endswith(".weight") else name
    last = text.split(".")[-1]
    if last == "bias":
        return []
    for end in [text[0 : max(len(text) - len(last) - 1, 0)], text]:
        for part, marks in MARKS.items():
            for mark in marks:
                if end.endswith(mark) and last != "":
                    module = end[0 : len(end) - len(mark)]
                    if module != "" and module[-1] in "._":
                        module = module[0 : len(module) - 1]
                    return [module, part]
    return []


def pairs_of(shapes: Shapes, config: Mapping[str, Any], matches: Callable[[str, str], bool]) -> list[Pair]:
    """The modules of an adapter. shapes: of its tensors; config: PEFT's, empty if the file has none; matches: whether
    the end of a module's name fits a pattern. Errors: InvalidInput for what is no LoRA of two matrices"""
    parts: dict[str, dict[str, str]] = {"a": {}, "b": {}, "magnitudes": {}}
    modules: dict[str, bool] = {}
    for name in shapes.keys():
        found = module_and_part(name)
        if len(found) == 0:
            raise InvalidInput(f'"{name}" is no matrix of a LoRA', hint=_why(name))
        modules[found[0]] = True
        part = parts[found[1]]
        if found[0] in part:
            text = f'of "{found[0]}" the adapter has "{part[found[0]]}" and "{name}"'
            raise InvalidInput(text, hint="a file has one adapter")
        part[found[0]] = name
    pairs: list[Pair] = []
    for module in modules.keys():
        a, b, magnitudes = [part.get(module, "") for part in parts.values()]
        if a == "" or b == "":
            text = f'of "{module}" the adapter has only {b if a == "" else a}'
            raise InvalidInput(text, hint="it needs lora_A and lora_B")
        if magnitudes == "" and config.get("use_dora") is True:
            raise InvalidInput(f'of "{module}" the adapter has no lora_magnitude_vector', hint="use_dora is set")
        rank = _rank(a, shapes[a], b, shapes[b])
        pairs.append(Pair(module, a, b, _scale(config, module, rank, matches), magnitudes))
    return pairs


def _rank(a: str, first: Sequence[int], b: str, second: Sequence[int]) -> int:
    """The common dim of A and B. Errors: InvalidInput"""
    is_window = len(first) > 2 and len(second) == len(first) and prod(second[2:]) == 1
    if (len(first) == 2 and len(second) == 2) or is_window:
        if first[0] == second[1]:
            return first[0]
        if first[1] == second[0] and not is_window:
            return first[1]
    text = f'"{a}" {shape_text(first)} and "{b}" {shape_text(second)} are no two matrices'
    raise InvalidInput(text, hint="of a convolution B has windows of one number" if len(first) > 2 else "")


def matrix_shape(shape: Sequence[int]) -> list[int]:
    """Of A or B, with the numbers of a filter as one row."""
    return [shape[0], prod(shape[1:])]


def _why(name: str) -> str:
    if "embedding" in name:
        return "adapters of embeddings are not supported"
    if "trainable_tokens" in name:
        return "trained tokens are not supported"
    if name.endswith(".bias"):
        return "biases that are trained with an adapter (bias, lora_bias) are not supported"
    return "weights that an adapter replaces (modules_to_save) are not supported: merge them into the model"


def _scale(config: Mapping[str, Any], module: str, rank: int, matches: Callable[[str, str], bool]) -> float:
    """As PEFT computes it: lora_alpha over the rank, or over its root."""
    if len(config) == 0:
        return 1.0
    alpha: float = config.get("lora_alpha", config.get("alpha", DEFAULT_ALPHA if "peft_type" in config else rank))
    patterns = config.get("alpha_pattern")
    name = module[len(PREFIX) :] if module.startswith(PREFIX) else module  # as PEFT matches it
    if patterns is not None:
        for pattern, value in patterns.items():
            if matches(pattern, name):
                alpha = value
                break  # PEFT takes the first pattern that matches
    return alpha / (sqrt(rank) if config.get("use_rslora") is True else max(rank, 1))


# ── names of modules ──


def name_parts(name: str) -> list[str]:
    """The parts of the name of a node, a weight or a tensor."""
    parts = [part for part in name.replace("/", ".").split(".") if part != ""]
    return parts if len(parts) > 0 else [name]


def is_kind(part: str) -> bool:
    """Whether a part of a name says what a node or tensor is."""
    text = part.lower()
    if text.startswith("fused"):
        text = text[5:]
    for kind in KINDS:
        if text.startswith(kind) and text[len(kind) : len(kind) + 1] in ["", "_", ":"]:
            return True
    return False


def module_parts(name: str) -> list[str]:
    """The parts of the module in the name of a node, a weight, or a tensor of an adapter."""
    parts = name_parts(name)
    while len(parts) > 1 and is_kind(parts[-1]):
        parts = parts[0 : len(parts) - 1]
    return parts


def plain_parts(name: str) -> list[str]:
    """The same in the form in which exporters' and PEFT's names can be compared."""
    parts = module_parts(name)
    while len(parts) > 1 and parts[0] in WRAPPERS:
        parts = parts[1:]
    return [SAME.get(part, part) for part in parts]


def module_key(module: str) -> str:
    """The name of a module by which files and models are compared."""
    return ".".join(plain_parts(module))


# ── places ──


def _rank_axis(name: str) -> int:
    if "lora_A" in name:
        return 1
    return 0 if "lora_B" in name else -1


def _fed_pair(pair: Pair, slot: Sequence[str], shapes: Shapes, inputs: Declared) -> list[Fed]:
    """The pair of a PEFT adapter as inputs of the model: A (fan_in, rank), B (rank, fan_out). slot: these inputs"""
    if pair.magnitudes != "":
        raise InvalidInput(f'the model has inputs for LoRA of "{pair.module}"', hint="DoRA needs a model without them")
    found: list[Fed] = []
    for n in range(2):
        name, tensor = slot[n], pair.a if n == 0 else pair.b
        shape, declared = shapes[tensor], inputs[name]
        wanted = declared[n] if len(declared) > n else None
        is_transposed = False
        if isinstance(wanted, int):
            is_transposed = shape[n] != wanted
            if wanted not in shape:
                known = ", ".join([str(d) if isinstance(d, int) else "?" if d is None else d for d in declared])
                raise InvalidInput(f'"{tensor}" {shape_text(shape)} does not fit input "{name}" [{known}]')
        found.append(Fed(name, tensor, 1 - n, is_transposed, pair.scale if n == 1 else 1.0))
    return found


def _entry(pair: Pair, rows: Sequence[int], shapes: Shapes, inputs: Declared, name: str) -> Entry:
    """The pair in ALL_A and ALL_B. rows: first and number in ALL_A, and in ALL_B; name: of the adapter. Errors:
    InvalidInput for matrices of other sizes"""
    a, b = matrix_shape(shapes[pair.a]), matrix_shape(shapes[pair.b])
    is_peft = a[1] == rows[1] and b[0] == rows[3] and a[0] == b[1]
    if not is_peft and (a[0] != rows[1] or b[1] != rows[3] or a[1] != b[0]):
        text = f'adapter "{name}" does not fit "{module_key(pair.module)}": it is {rows[1]} to {rows[3]}'
        raise InvalidInput(f'{text}, "{pair.a}" is {shape_text(a)}, "{pair.b}" is {shape_text(b)}')
    if pair.magnitudes != "" and (ALL_MAGNITUDES not in inputs or prod(shapes[pair.magnitudes]) != rows[3]):
        hint = f"it needs {rows[3]} numbers, and a session that was created with an adapter of DoRA"
        raise InvalidInput(f'"{pair.magnitudes}" of adapter "{name}" has no place in the session', hint=hint)
    rank = a[0] if is_peft else a[1]
    return Entry(pair.a, pair.b, rows[0], rows[2], rows[1], rows[3], rank, is_peft, pair.scale, pair.magnitudes)


def check_together(active: Sequence[Places]) -> None:
    """active: the adapters of a run. Errors: InvalidInput for DoRA beside others: the sum has no defined lengths"""
    if len(active) > 1 and any(any(e.magnitudes != "" for e in one.entries) for one in active):
        raise InvalidInput("an adapter of DoRA cannot be active beside others", hint="activate it alone, or merge it")


def places_of(
    shapes: Shapes, pairs: Callable[[], list[Pair]], slots: Slots, inputs: Declared, rows: Rows, name: str
) -> Places:  # fmt: skip
    """Where the tensors of an adapter with this name go. pairs: its modules; slots: the inputs that a model has for
    modules; rows: the places of a pair in ALL_A and ALL_B. Errors: InvalidInput"""
    if all(tensor in inputs for tensor in shapes.keys()):
        return Places([], [Fed(tensor, tensor, _rank_axis(tensor), False, 1.0) for tensor in shapes.keys()])
    entries: list[Entry] = []
    fed: list[Fed] = []
    taken: dict[str, str] = {}  # the module that a place has, by inputs or rows
    for pair in pairs():
        key = module_key(pair.module)
        if key in slots:
            _take(taken, slots[key][1], pair, name)
            fed.extend(_fed_pair(pair, slots[key], shapes, inputs))
        else:
            for found in rows(pair):
                _take(taken, f"{found[2]}", pair, name)
                entries.append(_entry(pair, found, shapes, inputs, name))
    return Places(entries, fed)


def _take(taken: dict[str, str], place: str, pair: Pair, name: str) -> None:
    """Errors: InvalidInput if another module of the adapter belongs to the same product"""
    if place in taken:
        text = f'"{taken[place]}" and "{pair.module}" of adapter "{name}" belong to the same product of the model'
        raise InvalidInput(text, hint="the adapter is for a model with more parts: take the file of this part alone")
    taken[place] = pair.module


def rows_in_program(
    modules: Mapping[str, Sequence[Sequence[int]]], slots: Slots, pair: Pair, name: str
) -> Sequence[Sequence[int]]:  # fmt: skip
    """The places of a pair in a Program. modules: by key. Errors: InvalidInput if it has none"""
    key = module_key(pair.module)
    if key in modules:
        return modules[key]
    known = [*list(modules), *list(slots)][0:6]
    listed = ", ".join(known) if len(known) > 0 else "none"
    hint = f"export the Program from a session with adapters of such modules; it has places for {listed}"
    raise InvalidInput(f'the Program has no place for "{pair.module}" of adapter "{name}"', hint=hint)


def fits(modules: Any, slots: Any, defaults: list[str], sizes: list[int], inputs: Declared) -> bool:
    """Whether a file's places are inside its inputs. sizes: rows of ALL_A and ALL_B"""
    if not isinstance(modules, dict) or not isinstance(slots, dict):
        return False
    for _, several in modules.items():
        if not isinstance(several, list) or not all(_are_inside(rows, sizes) for rows in several):
            return False
    names = [*defaults]
    for _, slot in slots.items():
        if not isinstance(slot, list) or len(slot) != 2 or not all(isinstance(name, str) for name in slot):
            return False
        names.extend(slot)
    if not all(name in inputs for name in names):
        return False
    if not are_counts(sizes):
        return False
    for name, size in zip([ALL_A, ALL_B, ALL_MAGNITUDES], [*sizes, sizes[1]], strict=True):
        declared = inputs.get(name, [size if name == ALL_MAGNITUDES else 0])
        if len(declared) == 0 or declared[0] != size:
            return False
    return True


def _are_inside(rows: Any, sizes: list[int]) -> bool:
    if not are_counts(rows) or len(rows) != 4:
        return False
    return rows[0] + rows[1] <= sizes[0] and rows[2] + rows[3] <= sizes[1]
