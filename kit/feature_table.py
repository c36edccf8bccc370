"""What happens where two features meet: a table of pairs, and combinations of features that cover its pairs.

`AXES` has the kinds of features. A session has one value of each kind; the first value is a session without a feature
of that kind, but for providers, isolation and places. `RULES` lists the pairs that do not work. All others work, which
tests/test_feature_pairs.py (natively) and e2e/test_feature_pairs.py (in pages and in Pyodide) show by combinations that
contain each such pair. `python -m scripts.draw_house` writes the table into docs/use/combinations.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

from kit.covering import covering

WORKS, REFUSED, NOT_OFFERED = "works", "refused", "not offered"
AXES: dict[str, list[str]] = {
    "provider": ["wasm", "webgpu", "both", "auto"],
    "model": ["ONNX model", "Program with weights", "Program without weights", "cached Program"],
    "caller": ["runs", "Batcher", "TextGenerator", "training"],
    "texts": ["free texts", "formats"],
    "chats": ["one chat", "several chats"],
    "search": ["no search", "beams"],
    "caches": ["no caches", "growing caches", "static caches", "states"],
    "outputs": ["outputs on the CPU", "outputs on the GPU"],
    "adapters": ["no adapters", "adapters"],
    "bound": ["no bound", "stops", "memory limits", "time-outs"],
    "fault": ["no fault", "lost devices", "refused shaders"],
    "memory": ["no trim", "trim"],
    "sessions": ["one session", "several sessions"],
    "thread": ["main thread", "workers"],
    "watched by": ["nobody", "metrics and events"],
    "page": ["isolated", "not isolated"],
    "place": ["Python", "JavaScript", "Pyodide"],
}
WITHOUT_PLAIN = ("provider", "page", "place")  # kinds whose first value is a feature as well
PLAIN = {values[0] for kind, values in AXES.items() if kind not in WITHOUT_PLAIN}
# Kinds of which all combinations are tested, not only pairs: what a lost GPU takes along depends on who owns the
# results, and where they are kept.
TOGETHER = [*((who, "outputs", "fault") for who in ("caller", "chats", "search")), ("texts", "chats", "search")]
KIND = {value: kind for kind, values in AXES.items() for value in values}
MEANINGS = {
    "both": "`['webgpu', 'wasm']`", "auto": "`['auto']`",
    "Program with weights": "an [exported Program](../api/exported-programs.md) with its weights",
    "Program without weights": "an exported Program beside the model's file",
    "cached Program": "a Program from the cache of the process's user or of the browser",
    "formats": "the setting `format`: a schema, a regular expression or a grammar",
    "several chats": "texts that one generator writes at the same time",
    "beams": "beam search, the setting `num_beams` of `generate`",
    "growing caches": "a decoder's keys and values, one row longer after each token",
    "static caches": "caches of a fixed length, into which each token is written at its position",
    "states": "states of a fixed size, as of recurrences",
    "outputs on the GPU": "`preferredOutputLocation: 'gpu-buffer'`; a decoder's caches are outputs",
    "training": "`TrainingSession`; `adapters` are then those that the option `lora` trains",
    "stops": "a `signal`, or `terminate` of the run's options",
    "memory limits": "`memoryLimit`", "time-outs": "`compileTimeLimit` and `gpuTimeout`",
    "lost devices": "the GPU is lost between two runs", "refused shaders": "the GPU refuses all shaders",
    "several sessions": "another session of the same model works at the same time",
    "workers": "in pages a worker of the page's own, in Python a thread",
    "isolated": "cross-origin isolated pages, which have threads",
}  # fmt: skip


class Verdict(NamedTuple):
    """error: the class of the error, if the pair is refused; why: the reason, or what works in its place"""

    kind: str
    error: str = ""
    why: str = ""


def _refused(error: str, why: str) -> Verdict:
    return Verdict(REFUSED, error, why)


def _none(why: str) -> Verdict:
    return Verdict(NOT_OFFERED, "", why)


_TYPE = "in JavaScript `TypeError`"
_PROGRAMS = ["Program with weights", "Program without weights"]
_CACHES = AXES["caches"][1:]
_FAULTS = AXES["fault"][1:]
_WRITING = ["formats", "several chats", "beams"]
RULES: list[tuple[Sequence[str], Sequence[str], Verdict]] = [
    (["wasm"], ["outputs on the GPU"], _refused("InvalidInput", "the session has no GPU")),
    (["wasm"], _FAULTS, _none("the session has no GPU")),
    (
        ["webgpu"], ["refused shaders"],
        _refused("ExecutionError", "no other provider is in the list (Python compiles shaders in the first run)"),
    ),
    (["TextGenerator"], ["no caches"], _refused("InvalidInput", "it writes with decoders that have caches or states")),
    (["runs", "Batcher", "training", "no caches"], _WRITING, _none("a `TextGenerator` writes texts")),
    (["training"], _PROGRAMS, _refused("InvalidModel", "a Program has no operators to derive; train the ONNX model")),
    (["training"], ["outputs on the GPU"], _refused("InvalidInput", "the results of a training step are on the CPU")),
    (["training"], _CACHES, _none("a step reads whole texts at once")),
    (["Batcher"], ["training"], _refused("InvalidInput", f"{_TYPE}; `accumulate` makes one step of several batches")),
    (["TextGenerator"], ["training"], _refused("InvalidInput", f"{_TYPE}; generate with the exported model")),
    (["Batcher"], ["TextGenerator"], _none("texts of one generator share runs")),
    (["Python"], AXES["page"], _none("isolation is a property of pages")),
    (["Pyodide"], ["webgpu", "both"], _none("such sessions run alone; combinations are untested")),
    (["Pyodide"], ["auto"], _none("sessions run on WebAssembly; no trial compares it with the GPU")),
    (["Pyodide"], ["outputs on the GPU", *_FAULTS], _none("Pyodide has no GPU tensors and no recovery")),
    (["Pyodide"], _PROGRAMS, _refused("InvalidModel", "Pyodide has the compiler; pages open Programs without it")),
    (["Pyodide"], ["cached Program"], _none("Python in Pyodide cannot wait for the browser's storage")),
    (["Pyodide"], ["Batcher"], _none("there are no threads that could send requests")),
    (["Pyodide"], ["TextGenerator", *_WRITING], _none("its code needs NumPy; `run` with `sample_from` samples tokens")),
    (["Pyodide"], ["stops"], _none("nothing can set a flag while Python in Pyodide runs")),
]  # fmt: skip
_VERDICTS = {frozenset(pair): verdict for a, b, verdict in RULES for pair in product(a, b)}


def verdict(one: str, other: str) -> Verdict:
    return _VERDICTS.get(frozenset((one, other)), Verdict(WORKS))


def features() -> list[str]:
    return [value for value in KIND if value not in PLAIN]


def pairs() -> Iterator[tuple[str, str, Verdict]]:
    """All pairs of features that can meet: of two kinds, or of one kind if a rule names them."""
    for one, other in combinations(features(), 2):
        if KIND[one] != KIND[other] or frozenset((one, other)) in _VERDICTS:
            yield one, other, verdict(one, other)


def counts() -> Counter[str]:
    return Counter(found.kind for _, _, found in pairs())


def refused(place: str) -> list[tuple[str, str, Verdict]]:
    """The pairs that are refused in a place, those with a kind's plain value included."""
    found = []
    for pair, how in _VERDICTS.items():
        one, other = sorted(pair, key=list(KIND).index)
        is_here = other == place or KIND[other] != "place" and works(one, place) and works(other, place)
        if how.kind == REFUSED and is_here:
            found.append((one, other, how))
    return found


def attempt(one: str, other: str) -> dict[str, str]:
    """A combination that tries a pair that is refused: of other kinds the plain values, on a GPU if one needs it."""
    needs_gpu = one in _FAULTS or other in _FAULTS or {one, other} == {"training", "outputs on the GPU"}
    plain = {kind: values[0] for kind, values in AXES.items() if kind != "place"}
    more = {"provider": "webgpu" if needs_gpu else "wasm", "watched by": "metrics and events"}
    return {**plain, **more, KIND[one]: one, KIND[other]: other}


def works(one: str, other: str) -> bool:
    return verdict(one, other).kind == WORKS


def axes_of(place: str) -> dict[str, list[str]]:
    """The values of each kind that work in a place."""
    found = {kind: [x for x in values if works(place, x)] for kind, values in AXES.items()}
    return {kind: values for kind, values in found.items() if values and kind != "place"}


def rows(place: str) -> list[dict[str, str]]:
    """Combinations that contain each pair of values that works in this place."""
    axes = axes_of(place)
    return covering(axes, works, [group for group in TOGETHER if set(axes) >= set(group)])


def table() -> str:
    """The counts, the features, and the pairs that do not work, as Markdown."""
    number = counts()
    lines = [
        f"Of {number.total()} pairs of {len(features())} features {number[WORKS]} work, {number[REFUSED]} are refused",
        f"when the session (or what uses it) is created, and {number[NOT_OFFERED]} are not offered.",
        "", "| kind | features |", "|---|---|",
    ]  # fmt: skip
    for kind, values in AXES.items():
        own = [f"{x} ({MEANINGS[x]})" if x in MEANINGS else x for x in values if x not in PLAIN]
        lines.append(f"| {kind} | {', '.join(own)} |")
    lines += ["", "| feature | with | | |", "|---|---|---|---|"]
    for a, b, found in RULES:
        error = f"[`{found.error}`](../errors/{found.error}.md): " if found.error else ""
        lines.append(f"| {', '.join(a)} | {', '.join(b)} | {found.kind} | {error}{found.why} |")
    return "\n".join(lines)
