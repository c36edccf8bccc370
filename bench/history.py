"""Results over time: small files in bench/history, compared with those of the same machine."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from bench.results import Row

HISTORY = Path(__file__).parent / "history"
WORSE = 1.10  # a ratio to the peer that is worse by this factor is a regression

Result = dict[str, Any]


def entry(result: Result) -> Result:
    """Return the stored part of a result: three digits of the medians, without models with wrong results."""
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for row in result["rows"]:
        if Row(**row).wrong():
            continue
        times = {name: float(f"{value:.3g}") for name, value in row["times"].items()}
        rows.setdefault(row["model"], {})[str(row["threads"])] = times
    kept = {key: result[key] for key in ("date", "commit", "machine", "chromium", "load", "provider", "adapter")}
    return {**kept, "peak": round(result["peak"] / 1e9, 1), "models": rows}


def save(result: Result) -> Path:
    return write(entry(result))


def write(made: Result) -> Path:
    """Store an entry, whose fields include `date`, `provider` and `models` (name -> kind -> runtime -> ms)."""
    made = dict(made)
    HISTORY.mkdir(exist_ok=True)
    stamp = made["date"][:19].replace(":", "")
    path = HISTORY / f"{stamp}-{made['provider']}.json"
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(times)}" for name, times in made.pop("models").items())
    path.write_text(json.dumps(made, indent=1)[:-2] + ',\n "models": {\n' + lines + "\n }\n}\n")
    return path


def last(result: Result) -> Result | None:
    """Return the newest entry of the same machine and provider."""
    wanted = [result[key] for key in ("machine", "provider", "adapter")]
    for path in sorted(HISTORY.glob("*.json"), reverse=True):
        found = json.loads(path.read_text())
        # files of other measurements lack some of these
        if [found.get(key) for key in ("machine", "provider", "adapter")] == wanted and found["date"] != result["date"]:
            return found
    return None


def compare(result: Result) -> tuple[str, int]:
    """Return the changes of the ratios to the peer, in which noise is smaller than in times, and the number of
    regressions."""
    before, now = last(result), entry(result)
    if before is None:
        return "no earlier result of this machine in bench/history", 0
    lines, worse = [f"against {before['commit']} of {before['date'][:10]}, ratios to the peer:"], 0
    for name, by_threads in now["models"].items():
        for threads, times in by_threads.items():
            old, new = _ratio(before["models"].get(name, {}).get(threads, {})), _ratio(times)
            if math.isnan(old) or math.isnan(new):
                continue
            factor = old / new
            word = "SLOWER" if factor > WORSE else "faster" if factor < 1 / WORSE else ""
            worse += word == "SLOWER"
            if word:
                lines.append(f"  {name}, {threads} threads: {old:.2f}x -> {new:.2f}x {word}")
    if len(lines) == 1:
        lines.append("  nothing moved by more than 10 %")
    return "\n".join(lines), worse


def _ratio(times: dict[str, float]) -> float:
    return times.get("peer", math.nan) / times.get("ours", math.nan)
