"""python -m bench chart [RESULT]: an SVG of the ratios to onnxruntime-web, for the README.

RESULT is a file of bench/history (default: the newest of the WebAssembly provider, or of `bench start`).
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

from bench.history import HISTORY
from bench.models import is_quantised, origin

ROW, BAR, LEFT, WIDTH, TOP = 26, 9, 170, 760, 82
# colour and name of a bar, by kind of measurement
SERIES = {"1": ("#4c78a8", "1 thread"), "2": ("#f58518", "2 threads")}
VISITS = {"local": ("#4c78a8", "first visit"), "second": ("#f58518", "second visit")}
TITLES = {
    "wasm": "Speed of a run, onnxruntime-web = 1 (WebAssembly, same page). 2 is twice as fast",
    "start": "Speed from import to the first result, onnxruntime-web = 1 (WebAssembly). 2 is twice as fast",
}
Series = dict[str, tuple[str, str]]
Ratios = dict[str, dict[str, float]]  # ratios of a model or a net, by kind
TEXT = "#767676"  # readable on light and dark backgrounds


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench chart", description=__doc__)
    parser.add_argument("result", type=Path, nargs="?")
    parser.add_argument(
        "--start", action="store_true", help="the newest of `bench start --save`: first and later visits"
    )
    parser.add_argument("--out", type=Path, help="default docs/benchmarks.svg, docs/first_visit.svg")
    args = parser.parse_args(argv)
    provider = "start" if args.start else "wasm"
    kept = sorted(HISTORY.glob(f"*-{provider}.json"))
    if args.result is None and not kept:
        parser.error(f"bench/history has none: python -m bench {'start ' * args.start}--save")
    source = args.result or kept[-1]
    out = args.out or Path("docs/first_visit.svg" if args.start else "docs/benchmarks.svg")
    result = json.loads(source.read_text())
    out.write_text(svg(result))
    print(f"{out}, from {source}")
    print("\n".join(summary(result)))
    return 0


def summary(result: dict[str, Any]) -> list[str]:
    """Return, for each origin of the models and their weights, the geometric means and the lowest ratios."""
    series = VISITS if result["provider"] == "start" else SERIES
    groups: dict[str, list[dict[str, dict[str, float]]]] = {}
    for name, found in result["models"].items():
        quantised = ["quantised"] if is_quantised(name) else []
        for group in ("all", *quantised, origin(name)):
            groups.setdefault(group, []).append(found)
    lines = []
    for group, models in groups.items():
        cells = []
        for kind, (_, title) in series.items():
            if ratios := [ratio for times in models if (ratio := _ratio(times.get(kind, {}))) > 0]:
                cells.append(f"{title} {statistics.geometric_mean(ratios):.2f}x (lowest {min(ratios):.2f}x)")
        lines.append(f"{len(models):>4} {group}: {', '.join(cells)}")
    return lines


def svg(result: dict[str, Any]) -> str:
    """Return an SVG with a bar for each net and kind of run, the longest first, and a line at 1 (equal times)."""
    series = VISITS if result["provider"] == "start" else SERIES
    models = {
        name: {kind: ratio for kind, times in found.items() if kind in series and (ratio := _ratio(times)) > 0}
        for name, found in result["models"].items()
    }
    ratios = dict(sorted(_nets(models, series).items(), key=lambda item: -item[1].get(next(iter(series)), 0.0)))
    most = max((value for found in ratios.values() for value in found.values()), default=1.0)
    scale = (WIDTH - LEFT - 60) / max(1.0, most)
    height = TOP + ROW * len(ratios) + 24
    body = [_text(12, 22, TITLES[result["provider"]], 15)]
    body += _legend(result, series, models)
    for row, (name, found) in enumerate(ratios.items()):
        body += _bars(name, series, found, TOP + ROW * row, scale)
    at = LEFT + scale
    body.append(
        f'<line x1="{at:.1f}" y1="{TOP - 8}" x2="{at:.1f}" y2="{height - 20}" stroke="{TEXT}" stroke-width="1"/>'
    )
    body.append(_text(at, height - 6, "1: as fast as onnxruntime-web", 11, "middle"))
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">\n' + "\n".join(body) + "\n</svg>\n"
    )


def _ratio(times: dict[str, float]) -> float:
    return times.get("peer", math.nan) / times.get("ours", math.nan)


def _nets(models: Ratios, series: Series) -> Ratios:
    """Merge the variants `net.scheme@batch` of each net: geometric means over its schemes and batches."""
    nets: dict[str, list[dict[str, float]]] = {}
    for name, found in models.items():
        nets.setdefault(re.split("[.@]", name)[0], []).append(found)
    made: Ratios = {}
    for name, several in nets.items():
        title = f"{name}, {len(several)} models" if len(several) > 1 else name
        by_kind = {kind: [found[kind] for found in several if kind in found] for kind in series}
        made[title] = {kind: statistics.geometric_mean(values) for kind, values in by_kind.items() if values}
    return made


def _legend(result: dict[str, Any], series: Series, models: Ratios) -> list[str]:
    """Return the legend: colours with their means, the lowest of all models, the machine and the day."""
    out, x = [], 12
    for kind, (colour, name) in series.items():
        found = [by[kind] for by in models.values() if kind in by]
        if found:
            mean, lowest = statistics.geometric_mean(found), min(found)
            out.append(f'<rect x="{x}" y="34" width="10" height="10" fill="{colour}"/>')
            out.append(_text(x + 15, 43, f"{name}, geometric mean {mean:.2f}, lowest {lowest:.2f}", 12))
            x += 310
    where = f"{result['machine']['processor']}, Chromium {result['chromium'].split('.')[0]}, {result['date'][:10]}"
    return [*out, _text(12, 61, where, 11)]


def _bars(name: str, series: Series, found: dict[str, float], y: int, scale: float) -> list[str]:
    out = [_text(LEFT - 8, y + 14, name, 12, "end")]
    for n, (kind, (colour, _)) in enumerate(series.items()):
        if value := found.get(kind):
            top = y + n * (BAR + 1)
            out.append(f'<rect x="{LEFT}" y="{top}" width="{value * scale:.1f}" height="{BAR}" fill="{colour}"/>')
            out.append(_text(LEFT + value * scale + 4, top + BAR, f"{value:.2f}", 10))
    return out


def _text(x: float, y: float, text: str, size: int, anchor: str = "start") -> str:
    safe = text.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y}" font-size="{size}" fill="{TEXT}" text-anchor="{anchor}">{safe}</text>'


__all__ = ["main", "svg"]
