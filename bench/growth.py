"""Measurements of a soak: memory of processes, and growth beyond a slack.

Growth is the median of the last third of the samples minus the median of the first third, so that a leak counts at two
thirds of its size, and a single outlier not at all.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

MEGABYTES, COUNT, LATENCY = "MB", "", "ms"

# unit -> tolerated growth: a share of the first value, plus an absolute amount
SLACK = {MEGABYTES: (0.02, 2.0), COUNT: (0.0, 0.5), LATENCY: (0.3, 0.1)}

YOUNG = 60  # seconds
KINDS = ("renderer", "gpu-process")  # of Chromium's processes, besides the rest

Sample = Mapping[tuple[str, str, str], float]  # by place, measured quantity, and unit


class Growth:
    """Samples in order."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, str, str], list[float]] = defaultdict(list)

    def add(self, sample: Sample) -> None:
        for key, value in sample.items():
            self.series[key].append(value)

    def spans(self) -> Iterator[tuple[tuple[str, str, str], float, float]]:
        """Yield each quantity with its medians at the beginning and at the end."""
        for key, values in self.series.items():
            third = max(1, len(values) // 3)
            yield key, statistics.median(values[:third]), statistics.median(values[-third:])

    def grown(self) -> list[str]:
        """Return sentences about quantities that grew beyond their slack."""
        words = []
        for (place, what, unit), before, after in self.spans():
            share, more = SLACK[unit]
            if after - before > share * before + more:
                words.append(f"{place} {what}: {before:.2f} -> {after:.2f} {unit}".rstrip())
        return words

    def total(self, *names: str) -> float:
        """Return the total growth of the quantities with this name."""
        return sum(after - before for (_, what, _), before, after in self.spans() if what in names)

    def slower(self) -> float:
        """Return the largest ratio of latencies."""
        return max(after / before for (*_, unit), before, after in self.spans() if unit == LATENCY)


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def resident(pid: int | str) -> float:
    """Return the megabytes of a process without pages of files, which depend on other processes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1e3


def own() -> dict[str, int]:
    """Return the numbers of open files and threads of this process."""
    return {"files": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task"))}


def kin(parent: int) -> Iterator[int]:
    """Yield the processes that a process has started, and their descendants."""
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in children:
            yield int(child)
            yield from kin(int(child))


def age(pid: int) -> float:
    """Seconds."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def of_chromium() -> dict[str, float]:
    """Return the megabytes of the processes that this one has started, by kind: pages, GPU, others. Excludes young
    processes, of tabs that were just closed, and Playwright's own, which stores a log of the browser."""
    sums = dict.fromkeys((*KINDS, "browser"), 0.0)
    for pid in kin(os.getpid()):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text()
            if age(pid) < YOUNG or "playwright/driver" in command:
                continue
        except OSError:
            continue
        kind = next((kind for kind in KINDS if f"--type={kind}" in command), "browser")
        sums[kind] += resident(pid)
    return sums
