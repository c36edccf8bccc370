"""The verdict on a case: ours against every peer that answers, against its twins, and against the slow evaluator.

Peers have bugs too: we are wrong where we disagree with all peers that answer, or with ourselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import onnx

from fuzz import engine
from fuzz.case import Case, Verdict
from fuzz.compare import difference, largest_changes, nudge, widen
from fuzz.draw import Draw, is_float
from fuzz.engine import IN_PAGES, PLAIN, TWINS, WEBGPU, Failed, Twin
from fuzz.node import code_of
from fuzz.output_types import output_types
from fuzz.pages import Pages, declaring
from fuzz.peer_bugs import accepts_more, is_trusted, is_unread
from fuzz.peers import PEERS, Peers, no_answer
from fuzz.perturb import perturbed, with_inner_outputs
from fuzz.plain_numbers import with_plain_numbers
from fuzz.undefined import UNSIZED, reason, tolerance

NO_REASON = (
    "Refused",
    "IndexError",
    "TypeError",
    "AttributeError",
)  # a peer that stumbles has no reason

IN_A_PAGE = 1 / 4  # of the cases
# Units in the last place, and what chooses which way each element moves: the second takes the first's other ways. Two
# elements that cancel must move apart in one of them, which the last four leave undone once in sixteen times.
MOVES = ((1, 0), (-1, 0), (2, 1), (2, 2), (2, 3), (2, 4))
ROUNDS = 1 << 24  # of a loop, that nobody waits for

Ask = Callable[[bytes, list[Any]], list[Any]]  # model and runs in, answers out
Say = Callable[[str, bool], None]  # what is done now; whether it is ours (and its time counts)


def judge(
    case: Case, draw: Draw, peers: Peers, say: Say, twins: Sequence[Twin] = TWINS, pages: Pages | None = None
) -> Verdict:
    """The verdict; `draw` chooses the twins. pages: where some cases are asked, too."""
    say(PLAIN.name, True)
    got = engine.answers(case.model, case.runs, PLAIN, case.options)
    bad = next((a for a in got if isinstance(a, Failed) and not a.typed), None)
    if bad is not None:
        return Verdict("untyped", bad.kind, bad.message)
    if any(isinstance(a, Failed) and a.kind.startswith("Terminated") for a in got):
        return _endless(case, peers)
    if not case.judged:
        return _outcome(got, "alone")
    runs = [engine.plain(feeds) for feeds in case.runs]
    asked = _Case(case, runs, got, peers, say, pages)
    return asked.by_twins(draw, twins) or asked.by_peers() or asked.by_evaluator(draw) or _outcome(got, asked.standing)


def _endless(case: Case, peers: Peers) -> Verdict:
    """Of a loop that was stopped: it hangs unless the model asks for so many rounds, or a peer does not end, either."""
    runs = [engine.plain(feeds) for feeds in case.runs]
    if any(rounds > ROUNDS for rounds in engine.rounds(case.model, runs)):
        return Verdict("refused", "Terminated", "a loop of too many rounds")
    if any(a == no_answer(peer) for peer in PEERS for a in peers.ask(peer, case.model, runs)):
        return Verdict("refused", "Terminated", "a loop without end")
    return Verdict("hang", "a loop", "no peer goes on for as long")


def _outcome(got: Sequence[Any], standing: str) -> Verdict:
    refused = next((a for a in got if isinstance(a, Failed)), None)
    if refused is not None and all(isinstance(a, Failed) for a in got):
        return Verdict("refused", refused.kind, refused.message)
    return Verdict(standing)


class _Case:
    """What is known of a case while it is judged."""

    def __init__(
        self, case: Case, runs: list[Any], got: list[Any], peers: Peers, say: Say, pages: Pages | None = None
    ) -> None:
        self.case, self.runs, self.got, self.peers, self.say, self.pages = case, runs, got, peers, say, pages
        self.model = onnx.load_from_string(case.model)
        weights = {w.name: onnx.numpy_helper.to_array(w) for w in self.model.graph.initializer}
        self.fed = [{**weights, **feeds} for feeds in runs]
        self.tolerance = tolerance(self.model, [x for fed in self.fed for x in fed.values()])
        self.values = cache(self._values)
        self.types = cache(partial(output_types, self.model))
        self.standing = "alone"

    def _core(self) -> str:
        """What the case was made of: two failures of one kind may be one bug."""
        return self.case.note.split(" ")[0]

    def _ours(self, model: bytes, runs: list[Any], twin: Twin = PLAIN) -> list[Any]:
        if twin.page and self.pages:
            return self.pages.answers(declaring(model, self.got), runs, twin)
        return engine.answers(model, runs, twin, self.case.options)

    def _values(self, n: int) -> dict[str, Any]:
        """What there is at each name in a run: by the first that answers."""
        self.say("inner values", False)
        data, names = with_inner_outputs(self.model)
        for ask in (*(partial(self.peers.ask, peer) for peer in PEERS), self._ours):
            answer = ask(data, [self.runs[n]])[0]
            if not isinstance(answer, str | Failed):
                return {**dict(zip(names, answer, strict=True)), **self.fed[n]}
        return self.fed[n]

    def _arrived(self) -> list[dict[str, Any]]:
        return [self.values(n) for n in range(len(self.runs))]

    def _differs(self, n: int, other: Any, ask: Ask, mine: Any = None) -> str:
        """What differs beyond what the standard leaves open, and by more than `other` moves when what is inside moves
        in its last bits. ask: whoever gave `other`, for another's moves would have the difference in them. mine: held
        against it instead of our answer."""
        got = self.got[n] if mine is None else mine
        if not difference(got, other, self.tolerance):
            return ""
        self.standing = "open"
        why = reason(self.model, self.values(n), self.fed[n])
        if why in UNSIZED:
            return ""
        if why:
            return difference([_empty(v) for v in got], [_empty(v) for v in other], self.tolerance)
        return difference(got, other, self.tolerance, self._noise(n, other, ask))

    def by_twins(self, draw: Draw, twins: Sequence[Twin]) -> Verdict | None:
        """Two twins of them all, and now and then one in a page."""
        chosen = [twins[i] for i in draw.rng.permutation(len(twins))[:2]]
        if self.pages and self.case.target != "feeds" and not self.case.options and draw.chance(IN_A_PAGE):
            chosen.append(draw.pick(IN_PAGES))
        for twin in chosen:
            if twin.dims and self.case.target == "feeds":
                continue  # what fits is a question of the declared ranks
            self.say(
                twin.name, twin is not WEBGPU and not twin.page
            )  # a software adapter compiles some kernels for seconds
            others = self._ours(self.case.model, [*self.case.runs], twin)
            for n, (a, b) in enumerate(zip(self.got, others, strict=True)):
                if isinstance(b, Failed) and not b.typed:
                    return Verdict("untyped", b.kind, f"{twin.name}: {b.message}")
                if isinstance(a, Failed) or isinstance(b, Failed):
                    failed = [v for v in (a, b) if isinstance(v, Failed)]
                    gave = a if isinstance(b, Failed) else b
                    if len(failed) == 1 and not twin.dims and not self._may_differ(failed[0], gave):
                        mine, its = ("refused" if isinstance(v, Failed) else "answered" for v in (a, b))
                        what = f"{mine}, {twin.name} {its}: {a if mine == 'refused' else b}"
                        return Verdict("wrong", f"{twin.name}: outcome", what)
                elif (what := self._differs(n, b, partial(self._ours, twin=twin))) and (
                    "webgpu" not in twin.providers or self._finite(n)
                ):
                    what = f"run {n}: {twin.name} gives another answer: {what}"
                    return Verdict("wrong", f"{twin.name}: {self._core()}", what)
        return None

    def _finite(self, n: int) -> bool:
        """Whether all floats of a run are: WGSL lets compilers assume it, and a 0 · infinity be 0."""
        return all(
            np.isfinite(widen(x)).all()
            for value in (*self.values(n).values(), *self.got[n])
            for x in (value if isinstance(value, list) else [value])
            if isinstance(x, np.ndarray) and is_float(x.dtype)
        )

    def _may_differ(self, failed: Failed, gave: Any) -> bool:
        """Whether one twin may refuse so while another gives this: memory or time is short, there is no GPU, or a
        number that it has no type for, or counts to (kernels of the same node count differently); or an index that none
        need check: of what is left out, or of nothing."""
        beyond = ("fit the GPU's 32-bit integers", "a kernel would count to")
        if failed.kind.startswith(("OutOfMemory", "NoAdapter", "Terminated")) or any(
            words in failed.message for words in beyond
        ):
            return True
        fault = failed.kind.endswith(("raise_fault", "ExecutionError"))
        named = re.search(r'"(.*?)"', failed.message) if fault else None
        nothing = not all(map(_size, [*gave, *(x for fed in self.fed for x in fed.values())]))
        return bool(named and (nothing or is_unread(self.model, named[1])))

    def by_peers(self) -> Verdict | None:
        """Right if one agrees on every run that it answers; wrong if all disagree, on plain numbers, too, unless two
        agree with each other."""
        if all(isinstance(a, Failed) for a in self.got):
            return None
        found = {}
        for peer in PEERS:
            if not is_trusted(peer, self.model, self._arrived):
                continue
            self.say(peer, False)
            what = self._by_peer(partial(self.peers.ask, peer))
            if what == "":
                return None
            if what is not None:
                found[peer] = what
        if not found:
            return self._accepted()
        if not self._alike(found) and not self._differs_calmly(found):
            self.standing = "open"
            return None
        detail = "; ".join(f"{peer}: {what}" for peer, what in found.items())
        return Verdict("wrong", f"{'+'.join(found)}: {self._core()}", detail)

    def _alike(self, peers: Iterable[str]) -> bool:
        """Whether there are two, and they agree: then they need not be asked once more."""
        first, *others = (partial(self.peers.ask, peer) for peer in peers)
        base = first(self.case.model, self.runs)
        return bool(others) and all(
            not isinstance(a, str) and not isinstance(b, str) and not self._differs(n, b, ask, a)
            for ask in others
            for n, (a, b) in enumerate(zip(base, ask(self.case.model, self.runs), strict=True))
        )

    def _differs_calmly(self, peers: Iterable[str]) -> bool:
        """Whether none of them agrees on plain numbers, either."""
        case = with_plain_numbers(self.case)
        if case is None:
            return True
        self.say("plain numbers", False)
        runs = [engine.plain(feeds) for feeds in case.runs]
        calm = _Case(case, runs, self._ours(case.model, [*case.runs]), self.peers, self.say)
        return all(calm._by_peer(partial(self.peers.ask, peer)) != "" for peer in peers)

    def _accepted(self) -> Verdict | None:
        """Wrong if a peer knows the operator and refuses these operands."""
        if self.case.sound is None or self.standing != "alone" or isinstance(self.got[0], Failed):
            return None
        if accepts_more(self.model, self._arrived) or any(
            isinstance(x, np.ndarray) and not x.size for x in self.fed[0].values()
        ):
            return None  # empty operands are refused by peers here and there
        model, feeds = self.case.sound
        for peer in PEERS:
            refusal = self.peers.ask(peer, self.case.model, self.runs)[0]
            if not isinstance(refusal, str) or refusal.startswith(NO_REASON):
                continue
            if not isinstance(self.peers.ask(peer, model, [engine.plain(feeds)])[0], str):
                return Verdict("wrong", f"accepted: {self._core()}", f"{peer} refuses: {refusal}")
        return None

    def _by_peer(self, ask: Ask) -> str | None:
        """What differs; None if it does not answer."""
        pairs = [(n, b) for n, b in enumerate(ask(self.case.model, self.runs))
                 if not isinstance(self.got[n], Failed) and not isinstance(b, str) and self._whole(n, b)]  # fmt: skip
        if not pairs:
            return None
        self.standing = "right"
        return next((f"run {n}: {d}" for n, b in pairs if (d := self._differs(n, b, ask))), "")

    def _whole(self, n: int, answer: Sequence[Any]) -> bool:
        """Whether tensors are there, of the types that the schemas infer: a peer that gives another has no answer."""
        if any(x is None and mine is not None for x, mine in zip(answer, self.got[n], strict=True)):
            return False
        found = [code_of(x) if isinstance(x, np.ndarray) else 0 for x in answer]
        return all(0 in (code, other) or code == other for code, other in zip(self.types(), found, strict=True))

    def by_evaluator(self, draw: Draw) -> Verdict | None:
        """On some of the small cases: it takes a second where the session takes a millisecond."""
        if not draw.chance(0.25) or sum(_size(v) for v in self.runs[0].values()) > 3000:
            return None
        self.say("slow evaluator", False)
        if isinstance(self.got[0], Failed):
            return None
        other = _evaluated(self.case.model, self.runs[:1])[0]
        what = self._differs(0, other, _evaluated) if not isinstance(other, str) else ""
        return Verdict("wrong", "slow evaluator", f"slow evaluator: {what}") if what else None

    def _noise(self, n: int, base: list[Any], ask: Ask) -> Any:
        """How the answer moves when feeds, and what nodes hand on, move in their last bits; no excuse for integers out
        of one node."""
        others = []
        for ulps, seed in MOVES:
            rng = np.random.default_rng([n, seed])
            fed = [{k: nudge(v, rng, ulps) for k, v in self.runs[n].items()}]
            answers = (
                ask(model, fed)[0] for model in (perturbed(self.model, self.values(n), rng, ulps), self.case.model)
            )
            others += [next((a for a in answers if not isinstance(a, str | Failed)), None)]
        noise = largest_changes([o for o in others if o is not None], base)
        if len(self.model.graph.node) == 1:
            exact = [isinstance(b, np.ndarray) and b.dtype.kind in "iub" for b in base]
            noise = [None if e else v for e, v in zip(exact, noise, strict=True)]
        return noise


def _evaluated(model: bytes, runs: list[Any]) -> list[Any]:
    """By the slow evaluator, or why not."""
    return [answer if (answer := engine.evaluated(model, feeds)) is not None else "no answer" for feeds in runs]


def _size(x: Any) -> int:
    return sum(map(_size, x)) if isinstance(x, list) else int(np.size(x))


def _empty(x: Any) -> Any:
    """Of its shape and type, without its values."""
    if not isinstance(x, np.ndarray):
        return x
    return np.full(x.shape, "", object) if x.dtype.kind in "OUS" else np.zeros(x.shape, x.dtype)
