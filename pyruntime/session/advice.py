"""Says in words what a measured run spends its time on, how far that is from the machine's limits, what left the GPU,
and what to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOTED = 0.05  # share of the run's time from which a node is named
FAR = 0.5  # share of the machine's limit below which a node is far from it
NAMED = 5  # most nodes that are named one by one


@dataclass(frozen=True, slots=True)
class NodeUse:
    """What a node took in a run. operations: floating-point operations of its products and expressions; bytes: of the
    buffers that its kernels read and write; place: "wasm" or "webgpu"; is_scalar: its kernels are loops of scalars"""

    node: str
    place: str
    seconds: float
    operations: float
    bytes: int
    calls: int
    is_scalar: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """Measured on one thread. operations: floating-point operations a second; bandwidth: bytes a second"""

    operations: float
    bandwidth: float

    def least(self, use: NodeUse) -> float:
        """Seconds that the node takes at least."""
        return max(use.operations / self.operations, use.bytes / self.bandwidth)

    def share(self, use: NodeUse) -> float:
        """How much of the limit the node reaches. Products of 8-bit codes and data in caches may exceed it."""
        return min(1.0, self.least(use) / use.seconds) if use.seconds else 1.0


def advice(uses: Sequence[NodeUse], machine: Machine, report: Mapping[str, Any], run: float) -> list[str]:
    """Sentences, the most important first. report: of `explain` for this run; run: seconds of a run on one thread,
    with what is not in kernels"""
    total = sum(use.seconds for use in uses) or 1e-12
    found = [_summary([use for use in uses if use.place == "wasm"], machine)]
    found += _outside_kernels(total, run)
    found += _far(uses, machine, total)
    found += _bound_by_memory(uses, machine, total)
    found += _on_gpu(uses, total)
    found += _left_gpu(report)
    found += _in_python(report)
    return [text for text in found if text]


def _summary(uses: Sequence[NodeUse], machine: Machine) -> str:
    limits = f"{machine.operations / 1e9:.0f} GFLOP/s and {machine.bandwidth / 1e9:.1f} GB/s"
    seconds, least = sum(use.seconds for use in uses), sum(machine.least(use) for use in uses)
    if not seconds:
        return f"Limits of this machine, measured on one thread: {limits}."
    reached = (
        f"At these limits its operations and bytes take {_ms(least)}: the run reaches {_percent(least / seconds)}."
    )
    if least > seconds:
        reached = (
            "Its data stay in the processor's caches, or it computes on 8-bit codes: it is faster than these limits."
        )
    return f"Kernels on WebAssembly take {_ms(seconds)} on one thread. This machine reaches {limits}. {reached}"


def _outside_kernels(total: float, run: float) -> list[str]:
    if run - total < 0.5 * run:
        return []
    text = f"{_ms(run - total)} of {_ms(run)} are not in kernels: the run is short beside its fixed cost."
    return [f"{text} Run several items together (a Batcher, or a larger batch)."]


def _far(uses: Sequence[NodeUse], machine: Machine, total: float) -> list[str]:
    """Nodes that take more than twice what the machine needs, the largest loss first."""
    far = [use for use in uses if use.place == "wasm" and use.seconds > NOTED * total and machine.share(use) < FAR]
    far.sort(key=lambda use: machine.least(use) - use.seconds)
    texts = []
    for use in far[:NAMED]:
        shares = f"{_percent(use.seconds / total)} of the run, {_percent(machine.share(use))} of the limit"
        text = f"{use.node} is far from the machine's limits: {_ms(use.seconds)}, {shares}."
        texts.append(f"{text} {_remedy(use, machine)}")
    if len(far) > NAMED:
        texts.append(f"{len(far) - NAMED} more nodes are far from the machine's limits.")
    return texts


def _remedy(use: NodeUse, machine: Machine) -> str:
    if use.is_scalar:
        return "Its kernels are loops of scalars: another operator for the same result, or float32, may have vectors."
    if use.calls > 20:
        return f"It consists of {use.calls} calls: fewer and larger ones (a batch, no loop in the model) cost less."
    if use.seconds < 50e-6:
        return "It is short, so that fixed costs count: run several items together."
    if use.operations / machine.operations > use.bytes / machine.bandwidth:
        return "Its tiles do not fit its shape: `pyruntime tune` measures others; dims that are multiples of 16 help."
    return "It moves data more often than once: a smaller type, or a layout that the next node reads in order, helps."


def _bound_by_memory(uses: Sequence[NodeUse], machine: Machine, total: float) -> list[str]:
    """Whether the run reads memory at its limit."""
    near = [use for use in uses if use.place == "wasm" and machine.share(use) >= FAR]
    bound = [use for use in near if use.bytes / machine.bandwidth > use.operations / machine.operations]
    seconds = sum(use.seconds for use in bound)
    if seconds < 0.3 * total:
        return []
    size = sum(use.bytes for use in bound) / 1e6
    text = (
        f"{_percent(seconds / total)} of the time goes into reading and writing {size:.0f} MB near the memory's limit."
    )
    return [f"{text} More threads help little; weights of 8 or 4 bits, or several rows in a run, do."]


def _on_gpu(uses: Sequence[NodeUse], total: float) -> list[str]:
    slow = sorted((use for use in uses if use.place == "webgpu"), key=lambda use: -use.seconds)
    if not slow or slow[0].seconds < NOTED * total:
        return []
    first = f"{slow[0].node} takes longest on the GPU: {_ms(slow[0].seconds)}, {_percent(slow[0].seconds / total)}."
    return [f"{first} `pyruntime tune` measures other schedules for this adapter."]


def _left_gpu(report: Mapping[str, Any]) -> list[str]:
    """Why nodes are not on the session's first provider, and what crosses between providers."""
    reasons = Counter(node["why"] for node in report["nodes"] if node["why"])
    texts = []
    for why, count in reasons.most_common(NAMED):
        first = next(node["node"] for node in report["nodes"] if node["why"] == why)
        what = f"{count} nodes are" if count > 1 else "1 node is"
        texts.append(f"{what} not on the session's first provider, {first} first: {why}.")
    crossing = [(node["crossing"] or 0, node["node"]) for node in report["nodes"]]
    if size := sum(n for n, _ in crossing):
        text = f"{size / 1e6:.2f} MB cross between providers in a run, most of it for {max(crossing)[1]}."
        texts.append(f"{text} Nodes that stay together cross less.")
    reason = report.get("providers", {}).get("why", "")
    return [*texts, *([f"The GPU is not used: {reason}."] if reason else [])]


def _in_python(report: Mapping[str, Any]) -> list[str]:
    hosts = [node["node"] for node in report["nodes"] if node["place"] == "host"]
    if not hosts:
        return []
    return [
        f"{len(hosts)} nodes run in Python, {hosts[0]} first: do this work before or after the model if it is slow."
    ]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds >= 1e-5 else f"{1e6 * seconds:.1f} us"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


__all__ = ["Machine", "NodeUse", "advice"]
