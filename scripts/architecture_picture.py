"""Draws docs/architecture.svg: the folders of the product, and which imports which.

Called by scripts/draw_house.py. A folder stands one row above the highest folder that it imports, so every arrow points
down. Arrows that follow from others are left out. A box shows the folder's stage of a model's way, if it has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import NamedTuple

Graph = Mapping[str, set[str]]

WIDTH, MARGIN, ROW, BOX, GAP, TITLE = 860, 12, 66, 34, 10, 30
ROUNDS = 8  # of ordering; the number of crossings does not change after five
TEXT, LINE = "#767676", "#9a9a9a"  # readable on light and dark backgrounds


class Panel(NamedTuple):
    """A part of the picture. graph: the folders that each folder imports; stages: second lines of boxes, by folder"""

    title: str
    graph: Graph
    stages: Mapping[str, str]
    colour: str


def picture(panels: Sequence[Panel]) -> str:
    body: list[str] = []
    y = MARGIN
    for panel in panels:
        drawn, height = _panel(panel, y)
        body += drawn
        y += height
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}"'
    return f'{head} font-family="sans-serif">\n' + "\n".join(body) + "\n</svg>\n"


def _panel(panel: Panel, y: int) -> tuple[list[str], int]:
    """Return the drawing of a panel whose top is at y, and its height."""
    rows = _ordered(panel.graph, _rows(panel.graph))
    boxes = {
        name: box for n, row in enumerate(reversed(rows)) for name, box in _boxes(row, y + TITLE + n * ROW).items()
    }
    drawn = [_text(MARGIN, y + 16, panel.title, 14, "start")]
    drawn += [_arrow(boxes[a], boxes[b]) for a in sorted(panel.graph) for b in sorted(panel.graph[a])]
    for name, (x, top, width) in boxes.items():
        stage = panel.stages.get(name, "")
        drawn.append(f'<rect x="{x:.0f}" y="{top}" width="{width:.0f}" height="{BOX}" rx="4" fill="{panel.colour}"/>')
        drawn.append(_text(x + width / 2, top + (15 if stage else 21), name, 12, "middle", "#fff"))
        if stage:
            drawn.append(_text(x + width / 2, top + 28, stage, 10, "middle", "#fff"))
    return drawn, TITLE + len(rows) * ROW


def _rows(graph: Graph) -> list[list[str]]:
    """The folders by row, from the lowest: those that import nothing."""
    names = set(graph).union(*graph.values())

    def height(name: str) -> int:
        return max((1 + height(other) for other in graph.get(name, set())), default=0)

    heights = {name: height(name) for name in sorted(names)}
    return [[name for name in heights if heights[name] == n] for n in range(max(heights.values()) + 1)]


def _ordered(graph: Graph, rows: list[list[str]]) -> list[list[str]]:
    """Order each row by the mean position of the folders that its folders import or are imported by."""
    neighbours = {name: set(graph.get(name, set())) for row in rows for name in row}
    for name, others in graph.items():
        for other in others:
            neighbours[other].add(name)
    for _ in range(ROUNDS):
        place = {name: (n + 0.5) / len(row) for row in rows for n, name in enumerate(row)}
        rows = [sorted(row, key=lambda name: _mean([place[other] for other in neighbours[name]])) for row in rows]
    return rows


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.5  # exact, so that the order of a set decides no tie


def _boxes(row: Sequence[str], top: int) -> dict[str, tuple[float, int, float]]:
    """Left edge, top and width of each box of a row; the boxes are spread over the width."""
    widths = [max(58.0, 7.2 * len(name) + 14) for name in row]
    space = (WIDTH - 2 * MARGIN - sum(widths)) / len(row)
    x, found = MARGIN + space / 2, {}
    for name, width in zip(row, widths, strict=True):
        found[name] = (x, top, width)
        x += width + space
    return found


def _arrow(a: tuple[float, int, float], b: tuple[float, int, float]) -> str:
    x, y, u, v = a[0] + a[2] / 2, a[1] + BOX, b[0] + b[2] / 2, b[1]
    bend = (v - y) / 2
    path = f"M{x:.0f} {y}C{x:.0f} {y + bend:.0f} {u:.0f} {v - bend:.0f} {u:.0f} {v}"
    return f'<path d="{path}" fill="none" stroke="{LINE}"/><circle cx="{u:.0f}" cy="{v}" r="2.5" fill="{LINE}"/>'


def _text(x: float, y: float, text: str, size: int, anchor: str, colour: str = TEXT) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{text}</text>'
