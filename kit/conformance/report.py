"""The report of a conformance run: passes by category, and failures with their messages by operator."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

from kit.conformance.cases import CATEGORIES, Case
from kit.conformance.pool import Result


def failures(results: list[Result], cases: dict[str, Case]) -> str:
    """Failing cases by operator; operators with the most failures come first."""
    by_op: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.error:
            case = cases[result.name]
            by_op[case.op or case.category].append(result)
    lines = []
    for op, failed in sorted(by_op.items(), key=lambda item: (-len(item[1]), item[0])):
        lines.append(f"{op}: {len(failed)} failing")
        lines += [f"  {result.name}: {_short(result.error)}" for result in failed]
    return "\n".join(lines)


def table(results: list[Result], cases: dict[str, Case]) -> str:
    total = Counter(cases[result.name].category for result in results)
    passed = Counter(cases[result.name].category for result in results if not result.error)
    rows = [f"  {name:<18} {passed[name]:>5} of {total[name]}" for name in CATEGORIES if total[name]]
    slow = [r for r in sorted(results, key=lambda r: -r.seconds)[:5] if r.seconds >= 1]
    rows += [f"  slow: {result.name} {result.seconds:.1f} s" for result in slow]
    return "\n".join(rows)


def write_json(path: Path, results: list[Result], cases: dict[str, Case]) -> None:
    rows = [
        {
            "name": result.name,
            "category": cases[result.name].category,
            "op": cases[result.name].op,
            "error": result.error,
            "seconds": result.seconds,
            "wholly": result.wholly,
        }
        for result in results
    ]
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _short(message: str, limit: int = 300) -> str:
    text = " ".join(message.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
