"""Phases of first visits: from marks of page and worker (web/common/marks.js), and their downloads."""

from __future__ import annotations

import statistics
from collections import defaultdict

from playwright.sync_api import Page

MARK = "pyruntime "
BEGIN = MARK + "package requested"
ENTRIES = """() => performance.getEntries()
  .filter(({ entryType }) => entryType === 'mark' || entryType === 'resource')
  .map(({ entryType, name, startTime, responseEnd = 0 }) => ({
    entryType, name, start: performance.timeOrigin + startTime, end: performance.timeOrigin + responseEnd,
  }))"""
COMPILING = {
    "read": "read", "trace": "trace", "passes": "passes", "copies": "copy layers", "emit": "write kernels",
    "encode": "encode",
}  # fmt: skip


class Phases:
    """Milliseconds, by phase, of visits; a phase is named by the mark that ends it."""

    def __init__(self) -> None:
        self.visits: list[dict[str, float]] = []
        self.fetches: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def add(self, page: Page, compiling: dict[str, float]) -> None:
        """Add a finished visit; `compiling`: the engine's report of its phases."""
        entries = [entry for place in (page, *page.workers) for entry in place.evaluate(ENTRIES)]
        marks = sorted((e["start"], e["name"]) for e in entries if e["name"].startswith(MARK))
        begin = next(time for time, name in marks if name == BEGIN)
        times = [time for time, _ in marks]
        self.visits.append({
            name.removeprefix(MARK): time - before
            for before, (time, name) in zip([begin, *times], marks, strict=False) if time > begin
        } | {f"  {text}": compiling[name] for name, text in COMPILING.items() if name in compiling})  # fmt: skip
        for e in entries:
            if e["entryType"] == "resource" and e["start"] >= begin:
                self.fetches[self._file(e["name"])].append((e["start"] - begin, e["end"] - begin))

    @staticmethod
    def _file(url: str) -> str:
        name = url.partition("#")[0].rpartition("/")[2]
        return "the model" if name.endswith(".onnx") else name

    def table(self) -> str:
        """Return a table of means over all visits; a phase that a visit lacks counts as 0."""
        names = list(dict.fromkeys(name for visit in self.visits for name in visit))
        out = ["where the time of our first visits goes (local, ms, means over models; indented: parts of compiling)"]
        means = {n: statistics.mean(visit.get(n, 0.0) for visit in self.visits) for n in names}
        out += [f"  {name:30}{means[name]:8.0f}" for name in names]
        out.append("downloads meanwhile (ms from the start: requested, arrived)")
        for name, spans in self.fetches.items():
            asked, arrived = (statistics.median(times) for times in zip(*spans, strict=True))
            out.append(f"  {name:30}{asked:8.0f}{arrived:8.0f}")
        return "\n".join(out)
