"""Defaults that a session's preset sets (table in docs/api.md); the browser's are in web/page/options/presets.js."""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.native.sessions.run_queue import cores


@dataclass(frozen=True, slots=True)
class Preset:
    """spreads: over all cores in a run; side_by_side: runs at the same time, each on a core; low_power: asks for that
    GPU, if the process has none yet."""

    spreads: bool = False
    side_by_side: bool = True
    low_power: bool = False

    @property
    def threads(self) -> int:
        """Of a session that does not say."""
        return cores() if self.spreads else 1


PRESETS = {
    None: Preset(),
    "latency": Preset(spreads=True),
    "throughput": Preset(),
    "power": Preset(side_by_side=False, low_power=True),
}

__all__ = ["PRESETS", "Preset"]
