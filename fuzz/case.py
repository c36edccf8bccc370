"""A case: a model, the feeds of its runs on one session, and how far it can be judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """model: bytes of an ONNX model, or of a program. runs: feeds in order. judged: compare outputs with peers; if not,
    only crashes, hangs and untyped errors count. options: of the session. sound: model and feeds before a change that
    may make operands misfit: a peer that answers these, and refuses the changed ones, has a reason."""

    target: str
    model: bytes
    runs: tuple[Any, ...] = ()
    judged: bool = True
    note: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    sound: tuple[bytes, Feeds] | None = None


@dataclass(frozen=True)
class Verdict:
    """outcome: one of OUTCOMES. kind: equal for failures of one cause. detail: for people."""

    outcome: str
    kind: str = ""
    detail: str = ""


# right: a peer agrees. open: it agrees as far as the standard specifies the result, or as its own last bits allow; the
# verdict's kind says why. alone: no peer answers, twins agree. refused: by a typed error.
OUTCOMES = ("right", "open", "alone", "refused", "wrong", "crash", "hang", "untyped", "no case")
FAILURES = ("wrong", "crash", "hang", "untyped")
