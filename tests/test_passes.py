"""The table of passes: the facts that its rows state make a valid order at each level, and hold on real kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
import pytest

from kit import small_models, static_caches, zoo
from pyruntime.compiler.pipeline import PASSES, Fact, Pass, Work, mentioned_symbols
from pyruntime.compiler.user_passes import Pipeline
from pyruntime.frontend.feed_checks import required_inputs
from pyruntime.frontend.trace_graph import declared_specs, trace_graph
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.dtype import STRING
from pyruntime.ir.kernel import Block, Call, Host, Read
from pyruntime.ir.shape import decided_by_feeds
from pyruntime.onnx import load
from pyruntime.onnx.weight_values import elements
from pyruntime.options import LEVELS
from pyruntime.passes.cleanup.graph_pruning import prune
from pyruntime.passes.constants.constant_hoisting import is_foldable, unpacks_bits
from pyruntime.passes.loads import is_stored_constant
from pyruntime.placement.provider_list import target
from pyruntime.placement.target import Target
from pyruntime.providers.wasm import provider as wasm
from pyruntime.providers.webgpu.code_writer import GpuProvider

STRINGS = """<ir_version: 10, opset_import: ["" : 20]> g (string[N] a, string[N] b) => (string[N] y, bool[N] same)
    { ab = StringConcat (a, b)  y = Identity (ab)  same = Equal (a, b) }"""
MODELS: dict[str, Callable[[], bytes]] = {
    "strings": lambda: onnx.parser.parse_model(STRINGS).SerializeToString(),
    "branches and loops": lambda: small_models.branches_and_rounds().SerializeToString(),
    "scattered caches": lambda: static_caches.decoder(static_caches.by_rows).SerializeToString(),
    **{
        name: lambda name=name: zoo.materialize(name).read_bytes()
        for name in (
            "llama_mini", "llama_mini.fp16", "llama_mini.nb4", "llama_mini.qdq", "llama_mini.dyn", "lstm_tagger",
            "mobilenet_v2", "mobilenet_v2.qdq",
        )
    },
}  # fmt: skip


def cpu() -> Target:
    return target(["wasm"], [(wasm, wasm.code_writer(relaxed=False, shared=False))], {})


def gpu() -> Target:
    webgpu = GpuProvider()
    writers = [(wasm, wasm.code_writer(relaxed=False, shared=False)), (webgpu, webgpu.code_writer())]
    return target(["webgpu", "wasm"], writers, {})


def rows(level: str) -> list[Pass]:
    return [p for p in PASSES if LEVELS.index(p.level) <= LEVELS.index(level)]


@pytest.mark.parametrize("level", LEVELS)
def test_passes_find_what_they_need(level: str) -> None:
    """Derived from the rows alone: each pass's needs are established before it, and nothing in between breaks them."""
    facts: set[Fact] = set()
    for p in rows(level):
        assert facts >= {*p.needs}, f"{p.name} needs {[f.value for f in {*p.needs} - facts]}"
        facts = (facts - {*p.breaks}) | {*p.establishes}
    assert {Fact.NO_STRINGS, Fact.CLAIMED_CALLS, Fact.NO_DEAD_KERNELS, Fact.NO_UNUSED_READS} <= facts


def test_every_fact_has_a_pass_and_a_check() -> None:
    assert set(Fact) == {f for p in PASSES for f in p.establishes} == set(CHECKS)
    assert {f for p in PASSES for f in (*p.needs, *p.breaks)} <= set(Fact)


@pytest.mark.parametrize("make", [cpu, gpu])
@pytest.mark.parametrize("level", ["disabled", "basic", "all"])
@pytest.mark.parametrize("name", MODELS)
def test_facts_hold(name: str, level: str, make: Callable[[], Target]) -> None:
    graph, chosen = Pipeline(level).graph(load(MODELS[name]())), make()
    specs = declared_specs(required_inputs(graph))
    assert specs is not None
    with decided_by_feeds():
        traced = trace_graph(prune(graph), specs, elements, {})
        work = Work(traced, chosen.routines, chosen.rows, cpu_only=not chosen.memories)
        facts: set[Fact] = set()
        for p in rows(level):
            if p.applies(work):
                p.run(work)
            facts = (facts - {*p.breaks}) | {*p.establishes}
            for fact in facts:
                wrong = CHECKS[fact](work)
                assert not wrong, f"after {p.name}: {fact.value}, but not {wrong[0]}"


# ── checks: each gives what contradicts a fact ────────────────────────────────────────────────────────────────────


def calls(work: Work) -> list[Call]:
    return [k for k in all_kernels(work.main) if isinstance(k, Call)]


def strings(work: Work) -> Sequence[object]:
    moves = [k for k in all_kernels(work.main) if not isinstance(k, Host) and not k.blocks]
    return [k for k in moves if any(t.dtype is STRING for t in (*k.inputs, *k.outputs))]


def dead_kernels(work: Work) -> Sequence[object]:
    def dead(block: Block, outputs: set[int]) -> list[object]:
        read = outputs | {t.uid for k in block.kernels for t in k.inputs}
        own = [k for k in block.kernels if not isinstance(k, Read) and read.isdisjoint(t.uid for t in k.outputs)]
        inner = [b for k in block.kernels for b in k.blocks]
        return [*own, *[k for b in inner for k in dead(b, {t.uid for t in b.outputs})]]

    return dead(work.main, {t.uid for t in work.outputs})


def foldable(work: Work) -> list[object]:
    constant = {t.uid for k in work.init.kernels for t in k.outputs}
    owned = {t.uid for k in all_kernels(work.main) for b in k.blocks for t in b.outputs}
    found = [k for k in all_kernels(work.main) if is_foldable(k, constant)]
    return [k for k in found if owned.isdisjoint(t.uid for t in k.outputs)]  # a block keeps what makes its outputs


def unused_reads(work: Work) -> Sequence[object]:
    mentioned = mentioned_symbols(work)
    return [k for k in all_kernels(work.main) if isinstance(k, Read) and mentioned.isdisjoint(k.symbols)]


def unpacked_operands(work: Work) -> Sequence[object]:
    constant = {t.uid for k in work.init.kernels for t in k.outputs}
    operands = [(c, n) for c in calls(work) for n, t in enumerate(c.args) if t and is_stored_constant(t, constant)]
    return [c for c, n in operands if work.routines[c.routine].packs(c, n) is not None]


CHECKS: dict[Fact, Callable[[Work], Sequence[object]]] = {
    Fact.NO_STRINGS: strings,
    Fact.DENSE_OPERANDS: lambda w: [c for c in calls(w) if c.strided],
    Fact.NO_EPILOGUES: lambda w: [c for c in calls(w) if c.epilogue is not None or c.order is not None],
    Fact.CLAIMED_CALLS: lambda w: [c for c in calls(w) if c.epilogue is None and not w.routines[c.routine].claims(c)],
    Fact.NO_DEAD_KERNELS: dead_kernels,
    Fact.UNPACKED_ONCE: lambda w: [k for k in foldable(w) if unpacks_bits(k)],
    Fact.HOISTED_CONSTANTS: foldable,
    Fact.PACKED_OPERANDS: unpacked_operands,
    Fact.NO_UNUSED_READS: unused_reads,
}
