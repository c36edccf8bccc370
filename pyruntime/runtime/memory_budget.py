"""The memory that all sessions of a page, or of a process, may hold together."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

SHARES = (0.7, 0.9)  # of the limit: an event tells when sessions reach one


class Budget:
    """Of one kind of memory, in bytes. limit: inf for none; used: what sessions of this thread hold; elsewhere: what
    those of other threads hold. reached: called with each share of the limit that sessions come to hold, again after
    they held less."""

    def __init__(self, reached: Callable[[float], None]) -> None:
        self.limit: float = inf
        self.used = 0
        self.elsewhere = 0
        self._reached = reached
        self._told = 0  # shares that are reached

    def fits(self, more: int) -> bool:
        return self.used + self.elsewhere + more <= self.limit

    def hold(self, more: int) -> None:
        """Sessions of this thread have taken memory. more: below 0 if they freed it."""
        self.used += more
        self.tell()

    def tell(self) -> None:
        """After a change of any number."""
        held = self.used + self.elsewhere
        shares = [share for share in SHARES if held >= share * self.limit]
        before = self._told
        self._told = len(shares)
        for share in shares[before:]:
            self._reached(share)
