"""What a session does after a fault of its GPU (docs/design/sessions.md#recovery)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Faults
LOST = "lost"  # the device
FULL = "full"  # its memory
LATE = "late"  # no answer in time
REFUSED = "refused"  # the driver does not compile a shader

# What follows
AGAIN = "again"  # free all memory, open a lost device again, repeat the work
NODES = "nodes"  # the next provider gets the nodes at fault
SESSION = "session"  # it gets all nodes
FAIL = "fail"  # the work ends with the error

_PLACES: Mapping[str, str] = {"wasm": "WebAssembly"}
_NAMED = 3  # nodes that a warning names


@dataclass(eq=False, slots=True)
class Move:
    """What has left the GPU. node: "" stands for all nodes; to: the name of the next provider"""

    node: str
    reason: str
    to: str


class RecoveryPlan:
    """The plan for one piece of work, such as a run or the start of a session.

    is_enabled: whether the session may recover; can_compile: whether it has its model; providers: names in order of
    preference; has_fallback: whether it has a Program without the GPU, if it cannot compile one
    can_leave: whether the session can go on without the GPU; has_following: whether it names a provider after the GPU;
    made: the moves of this work
    """

    def __init__(
        self, is_enabled: bool, can_compile: bool, providers: Sequence[str], has_fallback: bool = False
    ) -> None:  # fmt: skip
        following = after_gpu(providers)
        self.can_leave = can_compile or has_fallback
        self.has_following = following != ""
        self.made: list[Move] = []
        self._is_enabled = is_enabled
        self._can_compile = can_compile
        self._next = "wasm" if following == "" else following
        self._seen: set[str] = set()

    def after(self, fault: str, nodes: Mapping[str, str], moved: Sequence[Move]) -> str:
        """What follows a fault, "" for an error that is none of the GPU. nodes: those at fault, with reasons, if they
        are known; moved: what has left the GPU.

        A lost device is opened again once, and full memory is freed once. A session that names no other provider gets
        the error, because it was created for the GPU alone; but a lost device would end it, so it goes on without."""
        if fault == "" or not self._is_enabled:
            return FAIL
        is_gone = fault == LOST or fault == LATE and not self.has_following
        is_first = fault not in self._seen
        self._seen.add(fault)
        if is_first and (is_gone or fault == FULL):
            return AGAIN
        if not self.can_leave or not (is_gone or self.has_following):
            return FAIL
        known = [move.node for move in moved]
        is_new = len(nodes) > 0 and all(node != "" and node not in known for node in nodes)
        return (
            NODES
            if is_new and self._can_compile and (fault == REFUSED or fault == LATE and is_first and not is_gone)
            else SESSION
        )

    def leave(self, nodes: Mapping[str, str], reason: str, moved: Sequence[Move]) -> list[Move]:
        """These nodes leave the GPU, with reasons; without any, all nodes leave it for `reason`. moved: what has left
        it before. Returns what has left it now."""
        made = [Move(node, why, self._next) for node, why in nodes.items()]
        if len(made) == 0:
            self.made = [Move("", reason, self._next)]
            return self.made
        self.made = [*self.made, *made]
        return [*moved, *made]


def after_gpu(providers: Sequence[str]) -> str:
    """The name of the provider after the GPU, "" if there is none, or WebAssembly, which supports every kernel, comes
    before it. "auto" stands for both."""
    names = [own for name in providers for own in (["webgpu", "wasm"] if name == "auto" else [name])]
    at = names.index("webgpu") if "webgpu" in names else len(names)
    return names[at + 1] if at + 1 < len(names) and "wasm" not in names[:at] else ""


def text_of_moves(moved: Sequence[Move]) -> str:
    """One warning for all moves of one piece of work."""
    last = moved[len(moved) - 1]
    place = _PLACES.get(last.to, last.to)
    if last.node == "":
        return f"{last.reason}; the session continues on {place}"
    named = "; ".join([f"{move.node}: {move.reason}" for move in moved[:_NAMED]])
    more = f"; and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
    return f"{named}{more}; from now on {'these nodes run' if len(moved) > 1 else 'this node runs'} on {place}"
