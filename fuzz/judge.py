"""The verdict on a case: compares our session with the peers that answer, with its twins, and with the slow evaluator.

Peers have bugs too: we are wrong if we disagree with all peers that answer, or with ourselves.
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
from fuzz.compare import Tolerance, difference, largest_changes, nudge, widen
from fuzz.draw import Draw, is_float
from fuzz.engine import IN_PAGES, PLAIN, TWINS, WEBGPU, Failed, Twin
from fuzz.node import code_of, nodes
from fuzz.output_types import output_types
from fuzz.pages import Pages, declaring
from fuzz.peer_bugs import accepts_more, is_trusted, is_unread
from fuzz.peers import PEERS, Peers, no_answer
from fuzz.perturb import perturbed, with_inner_outputs
from fuzz.plain_numbers import with_plain_numbers
from fuzz.tolerance import tolerance
from fuzz.undefined import Cause, Rule, open_outputs

# A peer that fails by one of these has a bug, and no reason to refuse.
NO_REASON = ("Refused", "IndexError", "TypeError", "AttributeError")

IN_A_PAGE = 1 / 4  # the share of the cases that Chromium runs, too
# Units in the last place by which values move, and the seed of each element's direction. The second reverses the first.
# Two elements that cancel must move apart in one of them, which the last four miss once in sixteen times.
MOVES = ((1, 0), (-1, 0), (2, 1), (2, 2), (2, 3), (2, 4))
ROUNDS = 1 << 24  # of a loop: more take too long for any runtime

Ask = Callable[[bytes, list[Any]], list[Any]]  # model and runs in, answers out
Report = Callable[[str, bool], None]  # the current step, and whether it is the engine's, so that its time counts


def judge(
    case: Case, draw: Draw, peers: Peers, report: Report, twins: Sequence[Twin] = TWINS, pages: Pages | None = None
) -> Verdict:
    """The verdict; `draw` chooses the twins. pages: run some cases in Chromium, too."""
    report(PLAIN.name, True)
    got = engine.answers(case.model, case.runs, PLAIN, case.options)
    bad = next((a for a in got if isinstance(a, Failed) and not a.typed), None)
    if bad is not None:
        return Verdict("untyped", bad.kind, bad.message)
    if any(isinstance(a, Failed) and a.kind.startswith("Terminated") for a in got):
        return _endless(case, peers)
    if not case.judged:
        return _outcome(got, "alone")
    runs = [engine.plain(feeds) for feeds in case.runs]
    judged = _Case(case, runs, got, peers, report, pages)
    wrong = judged.by_twins(draw, twins) or judged.by_peers() or judged.by_evaluator(draw)
    return wrong or _outcome(got, judged.standing, judged.why if judged.standing == "open" else "")


def _endless(case: Case, peers: Peers) -> Verdict:
    """The verdict on a loop that was stopped: a hang, unless the model asks for many rounds or a peer does not end."""
    runs = [engine.plain(feeds) for feeds in case.runs]
    if any(rounds > ROUNDS for rounds in engine.rounds(case.model, runs)):
        return Verdict("refused", "Terminated", "a loop of too many rounds")
    if any(a == no_answer(peer) for peer in PEERS for a in peers.ask(peer, case.model, runs)):
        return Verdict("refused", "Terminated", "a loop without end")
    return Verdict("hang", "a loop", "no peer goes on for as long")


def _outcome(got: Sequence[Any], standing: str, why: str = "") -> Verdict:
    refused = next((a for a in got if isinstance(a, Failed)), None)
    if refused is not None and all(isinstance(a, Failed) for a in got):
        return Verdict("refused", refused.kind, refused.message)
    return Verdict(standing, why)


class _Case:
    """What is known of a case while it is judged."""

    def __init__(
        self, case: Case, runs: list[Any], got: list[Any], peers: Peers, report: Report, pages: Pages | None = None
    ) -> None:
        self.case, self.runs, self.got, self.peers, self.report, self.pages = case, runs, got, peers, report, pages
        self.model = onnx.load_from_string(case.model)
        weights = {w.name: onnx.numpy_helper.to_array(w) for w in self.model.graph.initializer}
        self.fed = [{**weights, **feeds} for feeds in runs]
        self.values = cache(self._values)
        self.tolerance = cache(self._tolerance)
        self.rules = cache(self._rules)
        self.types = cache(partial(output_types, self.model))
        self.standing, self.why = "alone", ""

    def _core(self) -> str:
        """The node that the case was made of: two failures of one kind may be one bug."""
        return self.case.note.split(" ")[0]

    def _ours(self, model: bytes, runs: list[Any], twin: Twin = PLAIN) -> list[Any]:
        if twin.page and self.pages:
            return self.pages.answers(declaring(model, self.got), runs, twin)
        return engine.answers(model, runs, twin, self.case.options)

    def _values(self, n: int) -> dict[str, Any]:
        """The value of each name in a run, by the first runtime that answers."""
        self.report("inner values", False)
        data, names = with_inner_outputs(self.model)
        for ask in (*(partial(self.peers.ask, peer) for peer in PEERS), self._ours):
            answer = ask(data, [self.runs[n]])[0]
            if not isinstance(answer, str | Failed):
                return {**dict(zip(names, answer, strict=True)), **self.fed[n]}
        return self.fed[n]

    def _tolerance(self, n: int) -> Tolerance:
        return tolerance(self.model, self.values(n), self.fed[n])

    def _rules(self, n: int) -> list[tuple[Rule, ...]]:
        return open_outputs(self.model, self.values(n), self.fed[n])

    def _all_values(self) -> list[dict[str, Any]]:
        return [self.values(n) for n in range(len(self.runs))]

    def _differs(self, n: int, other: Any, ask: Ask, mine: Any = None, twin: bool = False) -> str:
        """What differs beyond what the standard leaves open, and by more than `other` moves when inner values move in
        their last bits. ask: the runtime that gave `other`, since the moves of another contain the difference. mine:
        compared with it instead of our answer. twin: `other` is our own, which few rules excuse."""
        got = self.got[n] if mine is None else mine
        if not difference(got, other, Tolerance(1)) or not difference(got, other, self.tolerance(n)):
            return ""
        if len(got) != len(other):
            return f"{len(got)} outputs for {len(other)}"
        self.standing = "open"
        noise = None
        for k, rules in enumerate(self.rules(n)):
            a, b = got[k], other[k]
            excuses = [rule for rule in rules if self._excuses(rule, n, a, b, twin)]
            self.why = "; ".join(rule.reason for rule in excuses) or self.why or "it moves as much in its last bits"
            if excuses and not all(rule.compares_shapes for rule in excuses):
                continue
            a, b = (_empty(a), _empty(b)) if excuses else (a, b)
            if difference(a, b, self.tolerance(n)):
                noise = self._noise(n, other, ask) if noise is None else noise
                if what := difference(a, b, self.tolerance(n), noise[k]):
                    return what
        return ""

    def _excuses(self, rule: Rule, n: int, a: Any, b: Any, twin: bool) -> bool:
        """Whether a rule allows two answers, a and b, for an output. If both are finite, only an inner value can have
        overflowed. Our own engine may differ only by randomness, a discrete result that a last digit decides, or an
        overflow."""
        if rule.cause is Cause.INFINITE or rule.cause is Cause.OVERFLOW and twin:
            inner = [value for name, value in self.values(n).items() if name not in self.fed[n]]
            return not _all_finite([*inner, a, b])
        return not twin or rule.cause in (Cause.RANDOM, Cause.LAST_DIGIT)

    def by_twins(self, draw: Draw, twins: Sequence[Twin]) -> Verdict | None:
        """Compares with two twins, and with one in a page for a share of the cases."""
        chosen = [twins[i] for i in draw.rng.permutation(len(twins))[:2]]
        if self.pages and self.case.target != "feeds" and not self.case.options and draw.chance(IN_A_PAGE):
            chosen.append(draw.pick(IN_PAGES))
        for twin in chosen:
            if twin.dims and self.case.target == "feeds":
                continue  # whether a feed fits depends on the declared ranks
            self.report(twin.name, twin is not WEBGPU and not twin.page)  # a software adapter compiles for seconds
            for n, other in enumerate(self._ours(self.case.model, [*self.case.runs], twin)):
                if verdict := self._by_twin(twin, n, other):
                    return verdict
        return None

    def _by_twin(self, twin: Twin, n: int, other: Any) -> Verdict | None:
        mine = self.got[n]
        if isinstance(other, Failed) and not other.typed:
            return Verdict("untyped", other.kind, f"{twin.name}: {other.message}")
        if isinstance(mine, Failed) or isinstance(other, Failed):
            failed = [v for v in (mine, other) if isinstance(v, Failed)]
            answer = mine if isinstance(other, Failed) else other
            if len(failed) == 2 or twin.dims or self._may_refuse(failed[0], answer):
                return None
            outcomes = ["refused" if isinstance(v, Failed) else "answered" for v in (mine, other)]
            what = f"{outcomes[0]}, {twin.name} {outcomes[1]}: {failed[0]}"
            return Verdict("wrong", f"{twin.name}: outcome", what)
        what = self._differs(n, other, partial(self._ours, twin=twin), twin=True)
        if not what or twin.providers[0] != "wasm" and not self._is_finite(n):
            return None
        return Verdict("wrong", f"{twin.name}: {self._core()}", f"run {n}: {twin.name} gives another answer: {what}")

    def _is_finite(self, n: int) -> bool:
        """Whether all floats of a run are: WGSL lets compilers assume it, and a 0 · infinity be 0."""
        return _all_finite([*self.values(n).values(), *self.got[n]])

    def _may_refuse(self, failed: Failed, answer: Any) -> bool:
        """Whether one twin may refuse what another answers: memory or time is short, there is no GPU, the GPU has no
        type for a number, kernels of the same node count to other numbers, or an index out of range need not be
        checked since nothing, or no output, is read by it."""
        limits = ("fit the GPU's 32-bit integers", "a kernel would need the number")
        if failed.kind.startswith(("OutOfMemory", "NoAdapter", "Terminated")) or any(
            words in failed.message for words in limits
        ):
            return True
        fault = failed.kind.endswith(("raise_fault", "ExecutionError"))
        named = re.search(r'"(.*?)"', failed.message) if fault else None
        nothing = not all(map(_size, [*answer, *(x for fed in self.fed for x in fed.values())]))
        return bool(named and (nothing or is_unread(self.model, named[1])))

    def by_peers(self) -> Verdict | None:
        """Right if one agrees on every run that it answers. Wrong if all disagree and two of them agree with each
        other, or if all disagree on plain numbers, too."""
        if all(isinstance(a, Failed) for a in self.got):
            return None
        found = {}
        for peer in PEERS:
            if not is_trusted(peer, self.model, self._all_values):
                continue
            self.report(peer, False)
            what = self._by_peer(partial(self.peers.ask, peer))
            if what == "":
                return None
            if what is not None:
                found[peer] = what
        if not found:
            return self._accepted()
        if not self._agree(found) and not self._differs_on_plain_numbers(found):
            self.standing, self.why = "open", f"on plain numbers a peer agrees: {found}"
            return None
        detail = "; ".join(f"{peer}: {what}" for peer, what in found.items())
        return Verdict("wrong", f"{'+'.join(found)}: {self._core()}", detail)

    def _agree(self, peers: Iterable[str]) -> bool:
        """Whether there are two peers, and they agree with each other."""
        first, *others = (partial(self.peers.ask, peer) for peer in peers)
        base = first(self.case.model, self.runs)
        return bool(others) and all(
            not isinstance(a, str) and not isinstance(b, str) and not self._differs(n, b, ask, a)
            for ask in others
            for n, (a, b) in enumerate(zip(base, ask(self.case.model, self.runs), strict=True))
        )

    def _differs_on_plain_numbers(self, peers: Iterable[str]) -> bool:
        """Whether none of the peers agrees with us on plain numbers, either."""
        case = with_plain_numbers(self.case)
        if case is None:
            return True
        self.report("plain numbers", False)
        runs = [engine.plain(feeds) for feeds in case.runs]
        plain = _Case(case, runs, self._ours(case.model, [*case.runs]), self.peers, self.report)
        return all(plain._by_peer(partial(self.peers.ask, peer)) != "" for peer in peers)

    def _accepted(self) -> Verdict | None:
        """Wrong if a peer knows the operator and refuses these operands."""
        if self.case.sound is None or self.standing != "alone" or isinstance(self.got[0], Failed):
            return None
        if accepts_more(self.model, self._all_values) or any(
            isinstance(x, np.ndarray) and not x.size for x in self.fed[0].values()
        ):
            return None  # some peers refuse empty operands
        model, feeds = self.case.sound
        for peer in PEERS:
            refusal = self.peers.ask(peer, self.case.model, self.runs)[0]
            if not isinstance(refusal, str) or refusal.startswith(NO_REASON):
                continue
            if not isinstance(self.peers.ask(peer, model, [engine.plain(feeds)])[0], str):
                return Verdict("wrong", f"accepted: {self._core()}", f"{peer} refuses: {refusal}")
        return None

    def _by_peer(self, ask: Ask) -> str | None:
        """What differs; None if the peer does not answer."""
        pairs = [(n, b) for n, b in enumerate(ask(self.case.model, self.runs))
                 if not isinstance(self.got[n], Failed) and not isinstance(b, str) and self._whole(n, b)]  # fmt: skip
        if not pairs:
            return None
        self.standing = "right"
        return next((f"run {n}: {d}" for n, b in pairs if (d := self._differs(n, b, ask))), "")

    def _whole(self, n: int, answer: Sequence[Any]) -> bool:
        """Whether all tensors are there, of the types that the schemas infer: another answer counts as none."""
        if any(x is None and mine is not None for x, mine in zip(answer, self.got[n], strict=True)):
            return False
        found = [code_of(x) if isinstance(x, np.ndarray) else 0 for x in answer]
        return all(0 in (code, other) or code == other for code, other in zip(self.types(), found, strict=True))

    def by_evaluator(self, draw: Draw) -> Verdict | None:
        """Compares a quarter of the small cases: the evaluator takes a second where the session takes a millisecond."""
        if not draw.chance(0.25) or sum(_size(v) for v in self.runs[0].values()) > 3000:
            return None
        self.report("slow evaluator", False)
        if isinstance(self.got[0], Failed):
            return None
        other = engine.evaluated(self.case.model, self.runs[0])
        if isinstance(other, Failed):
            return Verdict("untyped", f"slow evaluator: {other.kind}", f"slow evaluator: {other.message}")
        what = self._differs(0, other, _evaluated, twin=True) if other is not None else ""
        return Verdict("wrong", "slow evaluator", f"slow evaluator: {what}") if what else None

    def _noise(self, n: int, base: list[Any], ask: Ask) -> list[Any]:
        """How far each output moves when feeds and inner values move in their last bits; nothing for integers that a
        single node gives."""
        others = []
        for ulps, seed in MOVES:
            rng = np.random.default_rng([n, seed])
            fed = [{k: nudge(v, rng, ulps) for k, v in self.runs[n].items()}]
            models = (perturbed(self.model, self.values(n), rng, ulps), self.case.model)
            answers = (ask(model, fed)[0] for model in models)
            others += [next((a for a in answers if not isinstance(a, str | Failed)), None)]
        noise: list[Any] = largest_changes([o for o in others if o is not None], base)
        if sum(1 for _ in nodes(self.model.graph)) == 1:
            exact = [isinstance(b, np.ndarray) and b.dtype.kind in "iub" for b in base]
            noise = [None if e else v for e, v in zip(exact, noise, strict=True)]
        return noise


def _evaluated(model: bytes, runs: list[Any]) -> list[Any]:
    """The slow evaluator's answers, or a word for each that is missing."""
    answers = (engine.evaluated(model, feeds) for feeds in runs)
    return ["no answer" if answer is None else answer for answer in answers]


def _all_finite(values: Sequence[Any]) -> bool:
    return all(
        np.isfinite(widen(x)).all()
        for value in values
        for x in (value if isinstance(value, list) else [value])
        if isinstance(x, np.ndarray) and is_float(x.dtype)
    )


def _size(x: Any) -> int:
    return sum(map(_size, x)) if isinstance(x, list) else int(np.size(x))


def _empty(x: Any) -> Any:
    """An array of the same shape and type without its values."""
    if not isinstance(x, np.ndarray):
        return x
    return np.full(x.shape, "", object) if x.dtype.kind in "OUS" else np.zeros(x.shape, x.dtype)
