"""The verdict on a case: ours against every peer that answers, against its twins, and against the slow evaluator.

Peers have bugs too: we are wrong where we disagree with all peers that answer, or with ourselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from fuzz import ours
from fuzz.case import Case, Verdict
from fuzz.compare import difference, nudged, spread
from fuzz.draw import Draw
from fuzz.ours import PLAIN, TWINS, Failed, Twin
from fuzz.peers import PEERS, Peers
from fuzz.undefined import SIZES, reason, tolerance, trusted

Say = Callable[[str, bool], None]  # what is done now; whether it is ours (and its time counts)


def judge(case: Case, draw: Draw, peers: Peers, say: Say, twins: Sequence[Twin] = TWINS) -> Verdict:
    """The verdict; `draw` chooses the twins."""
    say(PLAIN.name, True)
    got = ours.answers(case.model, case.runs, PLAIN, case.options)
    bad = next((a for a in got if isinstance(a, Failed) and not a.typed), None)
    if bad is not None:
        return Verdict("untyped", bad.kind, bad.message)
    if not case.judged:
        return _outcome(got, "alone")
    runs = [ours.plain(feeds) for feeds in case.runs]
    asked = _Case(case, runs, got, peers, say)
    return asked.by_twins(draw, twins) or asked.by_peers() or asked.by_evaluator(draw) or _outcome(got, asked.standing)


def _outcome(got: Sequence[Any], standing: str) -> Verdict:
    refused = next((a for a in got if isinstance(a, Failed)), None)
    if refused is not None and all(isinstance(a, Failed) for a in got):
        return Verdict("refused", refused.kind, refused.message)
    return Verdict(standing)


class _Case:
    """What is known of a case while it is judged."""

    def __init__(self, case: Case, runs: list[Any], got: list[Any], peers: Peers, say: Say) -> None:
        self.case, self.runs, self.got, self.peers, self.say = case, runs, got, peers, say
        self.model = onnx.load_from_string(case.model)
        self.tolerance = tolerance(self.model, runs)
        self.open = reason(self.model, runs)
        self.standing = "alone"

    def _core(self) -> str:
        """What the case was made of: two failures of one kind may be one bug."""
        return self.case.note.split(" ")[0]

    def _differs(self, n: int, other: Any, noise: Any = None) -> str:
        if self.open == SIZES:
            return ""
        if self.open:
            shapes = [_empty(v) for v in self.got[n]], [_empty(v) for v in other]
            return difference(*shapes, self.tolerance)
        return difference(self.got[n], other, self.tolerance, noise)

    def by_twins(self, draw: Draw, twins: Sequence[Twin]) -> Verdict | None:
        """Two twins of them all."""
        chosen = [twins[i] for i in draw.rng.permutation(len(twins))[:2]]
        for twin in chosen:
            self.say(twin.name, True)
            other = ours.answers(self.case.model, self.case.runs, twin, self.case.options)
            for n, (a, b) in enumerate(zip(self.got, other, strict=True)):
                if isinstance(b, Failed) and not b.typed:
                    return Verdict("untyped", b.kind, f"{twin.name}: {b.message}")
                if isinstance(a, Failed) or isinstance(b, Failed):
                    if isinstance(a, Failed) != isinstance(b, Failed) and not twin.dims:
                        mine, its = ("refused" if isinstance(v, Failed) else "answered" for v in (a, b))
                        return Verdict(
                            "wrong",
                            f"{twin.name}: outcome",
                            f"{mine}, {twin.name} {its}: {a if mine == 'refused' else b}",
                        )
                elif what := self._differs(n, b):
                    ask = lambda runs: ours.answers(self.case.model, runs, PLAIN, self.case.options)  # noqa: E731
                    if what := self._differs(n, b, self._noise(ask, n)):
                        return Verdict(
                            "wrong",
                            f"{twin.name}: {self._core()}",
                            f"run {n}: {twin.name} gives another answer: {what}",
                        )
        return None

    def by_peers(self) -> Verdict | None:
        """Right if one agrees on every run that it answers."""
        found = {}
        for peer in PEERS:
            if not trusted(peer, self.model):
                continue
            self.say(peer, False)
            what = self._by_peer(peer)
            if what == "":
                self.standing = "right"
                return None
            if what is not None:
                found[peer] = what
        return (
            Verdict(
                "wrong", f"{'+'.join(found)}: {self._core()}", "; ".join(f"{p}: {what}" for p, what in found.items())
            )
            if found
            else None
        )

    def _by_peer(self, peer: str) -> str | None:
        """What differs; None if it does not answer."""

        def ask(runs: list[Any]) -> list[Any]:
            return self.peers.ask(peer, self.case.model, runs)

        pairs = [(n, b) for n, b in enumerate(ask(self.runs))
                 if not isinstance(self.got[n], Failed) and not isinstance(b, str)]  # fmt: skip
        if not pairs:
            return None
        if not any(self._differs(n, b) for n, b in pairs):
            return ""
        return next((f"run {n}: {d}" for n, b in pairs if (d := self._differs(n, b, self._noise(ask, n)))), "")

    def by_evaluator(self, draw: Draw) -> Verdict | None:
        """On some of the small cases: it takes a second where the session takes a millisecond."""
        if not draw.chance(0.25) or sum(_size(v) for v in self.runs[0].values()) > 3000:
            return None
        self.say("slow evaluator", False)
        if isinstance(self.got[0], Failed):
            return None
        other = ours.evaluated(self.case.model, self.runs[0])
        if other is None or not (what := self._differs(0, other)):
            return None
        ask = lambda runs: ours.answers(self.case.model, runs, PLAIN, self.case.options)  # noqa: E731
        what = self._differs(0, other, self._noise(ask, 0))
        return Verdict("wrong", "slow evaluator", f"slow evaluator: {what}") if what else None

    def _noise(self, ask: Callable[[list[Any]], list[Any]], n: int) -> Any:
        """How the answer moves when feeds move in their last bits; no excuse for integers out of one node."""
        rng = np.random.default_rng(n)
        moved = [{k: nudged(v, rng, ulps) for k, v in self.runs[n].items()} for ulps in (1, 1, 2)]
        base, *others = ask([self.runs[n], *moved])
        if isinstance(base, str | Failed):
            return None
        others = [o for o in others if not isinstance(o, str | Failed)]
        noise = spread(others, base)
        if len(self.model.graph.node) == 1:
            exact = [isinstance(b, np.ndarray) and b.dtype.kind in "iub" for b in base]
            noise = [None if e else v for e, v in zip(exact, noise, strict=True)]
        return noise


def _size(x: Any) -> int:
    return sum(map(_size, x)) if isinstance(x, list) else int(np.size(x))


def _empty(x: Any) -> Any:
    return np.zeros(x.shape, x.dtype) if isinstance(x, np.ndarray) and x.dtype.kind not in "OUS" else x
