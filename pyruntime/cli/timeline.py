"""The timeline of a run's memory: the address and the lifetime of each buffer; and a drawing of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from pyruntime.cli import common
from pyruntime.native.sessions.session import Session
from pyruntime.runtime.arena import GPU
from pyruntime.runtime.timeline import BufferSpan as Span
from pyruntime.runtime.timeline import Timeline


def record(session: Session, feeds: Mapping[str, Any]) -> list[Span]:
    """The spans of one run, recorded while the planner plans it again. The session must have run these feeds before."""
    executor = session.latest()
    planner = executor.plan
    planner.tighten()
    watch = planner.observer = Timeline(list(executor.header["inputs"]))
    try:
        session.run(None, feeds)
    finally:
        planner.observer = None
    return watch.spans()


# ── the drawing ───────────────────────────────────────────────────────────────────────────────────────────────────

WIDTH, HEIGHT, LEFT, TOP, BELOW = 1200, 640, 76, 34, 110  # BELOW: height of the call numbers, weights and legend
KINDS = 8  # operators in the legend
STYLE = """text{font:11px system-ui,sans-serif;fill:#888}rect{stroke:#fff;stroke-width:.5}
.t{font-size:14px}.n{fill:#222}.l{font-size:12px}"""


def draw(spans: list[Span], title: str, weights: Mapping[str, int] | None = None) -> str:
    """SVG: calls from left to right, addresses from bottom to top; a panel for each memory, and below it its weights.

    weights: bytes that stay in memory between runs, by provider
    """
    sizes = weights or {}
    memories = [("wasm", [s for s in spans if s.address < GPU]), ("webgpu", [s for s in spans if s.address >= GPU])]
    panels = [(p, sizes.get(name, 0)) for name, p in memories if p]
    parts = [_panel(p, TOP + n * (HEIGHT + BELOW), title, size) for n, (p, size) in enumerate(panels)]
    height = TOP + len(parts) * (HEIGHT + BELOW)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 36} {height}"><style>{STYLE}</style>'
    return "\n".join([head, *parts, "</svg>"])


def page(spans: list[Span], title: str, weights: Mapping[str, int] | None = None) -> str:
    style = "body{margin:24px;background:Canvas;color-scheme:light dark}svg{width:100%;height:auto}"
    head = f'<!doctype html><meta charset="utf-8"><title>{escape(title)}: memory</title><style>{style}</style>'
    return f"{head}\n{draw(spans, title, weights)}\n"


def _panel(spans: list[Span], top: int, title: str, weights: int) -> str:
    place = _places(spans)
    total = max(place(s.address) + s.size for s in spans)
    end = max(s.end for s in spans)
    peak = max(sum(s.size for s in spans if s.start <= t < s.end) for t in range(end))
    memory = "GPU memory" if spans[0].address >= GPU else "linear memory"
    sizes = f"{common.size(peak)} at the peak, {common.size(weights)} of weights"
    caption = f"{title}: {memory}, {len(spans)} buffers, {sizes}"
    parts = [f'<text class="t" x="{LEFT}" y="{top - 12}">{escape(caption)}</text>']
    for k in range(5):
        y = top + HEIGHT * (1 - k / 4)
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{common.size(total * k / 4)}</text>')
    for k in range(5):
        x = LEFT + WIDTH * k / 4
        parts.append(f'<text x="{x:.0f}" y="{top + HEIGHT + 18}" text-anchor="middle">call {round(end * k / 4)}</text>')
    parts += [_rectangle(s, place(s.address), total, end, top) for s in spans]
    return "\n".join([*parts, *_weights(weights, top + HEIGHT + 28), *_legend(spans, top + HEIGHT + 74)])


def _weights(size: int, y: int) -> list[str]:
    """A bar from the first call to the last. Not to scale: weights may be a thousand times the memory of a run."""
    if not size:
        return []
    bar = f'<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="22" fill="#8884"/>'
    return [bar, f'<text class="l" x="{LEFT + 6}" y="{y + 15}">weights: {common.size(size)}, all the time</text>']


def _legend(spans: list[Span], y: int) -> list[str]:
    """Operators and their colours, in the order of their bytes times calls."""
    bytes_of: dict[str, int] = {}
    for s in spans:
        bytes_of[_kind(s)] = bytes_of.get(_kind(s), 0) + s.size * (s.end - s.start)
    out, x = [], LEFT
    for kind in sorted(bytes_of, key=lambda kind: -bytes_of[kind])[:KINDS]:
        out.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{_colour(kind)}"/>')
        out.append(f'<text class="l" x="{x + 16}" y="{y}">{escape(kind)}</text>')
        x += 34 + 8 * len(kind)
    return out


def _kind(s: Span) -> str:
    return s.name.partition(" ")[0] or "other"


def _colour(kind: str) -> str:
    return f"hsl({zlib.crc32(kind.encode()) % 360} 60% 72%)"


def _places(spans: list[Span]) -> Callable[[int], int]:
    """Maps addresses to positions in the drawing, which leaves out memory that no span uses (weights)."""
    used: list[list[int]] = []
    for a, b in sorted((s.address, s.address + s.size) for s in spans):
        if used and a <= used[-1][1]:
            used[-1][1] = max(used[-1][1], b)
        else:
            used.append([a, b])
    starts, offset = [], 0
    for a, b in used:
        starts.append((a, b, offset))
        offset += b - a
    return lambda address: next(o + address - a for a, b, o in starts if a <= address <= b)


def _rectangle(s: Span, at: int, total: int, end: int, top: int) -> str:
    x, width = LEFT + WIDTH * s.start / end, WIDTH * (s.end - s.start) / end
    height = HEIGHT * s.size / total
    y = top + HEIGHT * (1 - at / total) - height
    tip = f"{s.name}\n{common.size(s.size)} at {s.address}, calls {s.start} to {s.end - 1}"
    box = f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{_colour(_kind(s))}">'
    text = ""
    fitting = [name for name in (s.name, _kind(s)) if 7 * len(name) + 8 < width]
    if height > 13 and fitting:
        name = escape(fitting[0])
        text = f'<text class="n" x="{x + 4:.1f}" y="{y + height / 2 + 4:.1f}">{name}</text>'
    return f"{box}<title>{escape(tip)}</title></rect>{text}"
