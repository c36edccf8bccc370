"""NonMaxSuppression and ImageDecoder."""

# B batch, C classes, N boxes, K maximum number of boxes per class

from __future__ import annotations

import math
from collections.abc import Callable

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32, I64, U8
from pyruntime.ir.expr import Expr, Scalar, cast, dim, maximum, minimum, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim


@op("NonMaxSuppression", since=10)
def non_max_suppression(
    t: Tracer, boxes: Tensor, scores: Tensor, most: Tensor | None = None, iou_threshold: Tensor | None = None,
    score_threshold: Tensor | None = None, *, center_point_box: int = 0,
) -> Tensor:  # fmt: skip
    """Per batch item and class: select the box with the best score, drop the boxes that overlap it by more than the
    threshold (intersection over union), repeat. A score must exceed the score threshold, if one is given; of equal
    scores the first box wins; a score of -inf or NaN is never selected.

    Shapes: boxes (B, N, 4), scores (B, C, N) -> int64 (selected, 3): batch, class, box
    Spec:   https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html"""
    t.require_equal(boxes.shape[0], scores.shape[0], "batches of boxes and scores differ")
    t.require_equal(boxes.shape[1], scores.shape[2], "boxes and scores differ in number")
    limit = t.ints(most)[0] if most is not None else 0
    keep = sh.clamp(limit, 0, boxes.shape[1])
    planes = _planes(t, boxes, center_point_box)
    zero = t.scalar(0.0, F32)
    iou = t.reshape(iou_threshold, ()) if iou_threshold is not None else zero
    lowest = t.reshape(score_threshold, ()) if score_threshold is not None else t.scalar(-math.inf, F32)
    picks, counts = _pick(t, planes, t.cast(scores, F32), iou, lowest, keep)
    total = t.cast(t.reduce("sum", counts, [0, 1], keepdims=False), I64)
    return _list(t, picks, counts, t.ints(total, lower=0)[0])


def _planes(t: Tracer, boxes: Tensor, centered: int) -> Tensor:
    """Planes y1, x1, y2, x2, area, with y1 <= y2 and x1 <= x2: (B, N, 4) -> (B, 5, N)."""
    batch, count, _ = boxes.shape

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(batch) as b, k.loop(count, "vector") as n:
            p = [k.let(cast(boxes[b, n, c], F32)) for c in range(4)]
            if centered:
                x, y, w, h = p
                y1, x1, y2, x2 = y - h / 2.0, x - w / 2.0, y + h / 2.0, x + w / 2.0
            else:
                y1, x1, y2, x2 = minimum(p[0], p[2]), minimum(p[1], p[3]), maximum(p[0], p[2]), maximum(p[1], p[3])
            corners = [k.let(corner) for corner in (y1, x1, y2, x2)]
            area = (corners[2] - corners[0]) * (corners[3] - corners[1])
            for plane, value in enumerate((*corners, area)):
                k.store(out, (b, plane, n), value)

    return t.loops("nms_planes", [boxes], [((batch, 5, count), F32)], body)[0]


def _pick(t: Tracer, planes: Tensor, scores: Tensor, iou: Tensor, lowest: Tensor, keep: AnyDim) -> tuple[Tensor, ...]:
    """The selected boxes in order, and their number. Candidates are on a heap with the best score at its root: a class
    takes from it only as many as it needs, and compares each with the boxes that it has selected.

    Shapes: planes (B, 5, N), scores (B, C, N) -> int32 (B, C, K), int32 (B, C)"""
    batch, classes, count = scores.shape

    def body(k: Builder, picks: Tensor, counts: Tensor, heap: Tensor) -> None:
        with k.parallel(batch * classes) as unit:
            b = k.let(_quotient(unit, classes))
            c = k.let(unit - b * dim(classes))
            size = k.var(0, I32)
            with k.loop(count) as n, k.when(scores[b, c, n] > lowest.at()):
                k.store(heap, (unit, size.get), n)
                size.set(size.get + 1)

            def sift(start: Scalar, candidate: Expr) -> None:
                _sift(k, heap, unit, lambda n: scores[b, c, n], start, size.get, candidate)

            half = k.let(size.get >> 1)
            with k.loop(half) as n:
                at = k.let(half - 1 - n)
                sift(at, k.let(heap[unit, at]))
            picked = k.var(0, I32)
            with k.while_((picked.get < dim(keep)) & (size.get > 0)):
                best = k.let(heap[unit, 0])
                size.set(size.get - 1)
                sift(0, k.let(heap[unit, size.get]))
                chosen = [k.let(planes[b, p, best]) for p in range(5)]
                place, end = k.var(0, I32), k.var(picked.get, I32)
                with k.while_(place.get < end.get):
                    other = k.let(picks[b, c, place.get])
                    place.set(place.get + 1)
                    box = [planes[b, p, other] for p in range(5)]
                    shared = k.let(_intersection(box, chosen))
                    with k.when(shared > 0.0), k.when(_overlap(box[4], chosen[4], shared, iou.at())):
                        end.set(-1)
                with k.when(end.get >= 0):
                    k.store(picks, (b, c, picked.get), best)
                    picked.set(picked.get + 1)
            k.store(counts, (b, c), picked.get)

    args = [planes, scores, iou, lowest]
    outputs = [((batch, classes, keep), I32), ((batch, classes), I32)]
    return t.loops("nms", args, outputs, body, [((batch * classes, count), I32)])


def _sift(
    k: Builder, heap: Tensor, unit: Expr, score: Callable[[Expr], Expr], start: Scalar, size: Expr, candidate: Expr
) -> None:
    """Put a candidate at `start` and let it sink until no child is better: has a higher score or, of equal ones, comes
    first."""
    own = k.let(score(candidate))
    hole, child = k.var(start, I32), k.var(start * 2 + 1, I32)
    with k.while_(child.get < size):
        first, second = k.let(heap[unit, child.get]), k.let(heap[unit, minimum(child.get + 1, size - 1)])
        a, b = k.let(score(first)), k.let(score(second))
        takes_second = k.let((b > a) | ((b == a) & (second < first)))
        better, its_score = k.let(select(takes_second, second, first)), k.let(select(takes_second, b, a))
        with k.when((its_score > own) | ((its_score == own) & (better < candidate))):
            k.store(heap, (unit, hole.get), better)
            hole.set(child.get + cast(takes_second, I32))
            child.set(hole.get * 2 + 1)
        with k.otherwise():
            child.set(size)
    k.store(heap, (unit, hole.get), candidate)


def _quotient(unit: Expr, classes: AnyDim) -> Expr:
    return unit if classes == 1 else unit / dim(classes)


def _intersection(a: list[Expr], b: list[Expr]) -> Expr:
    height = minimum(a[2], b[2]) - maximum(a[0], b[0])
    width = minimum(a[3], b[3]) - maximum(a[1], b[1])
    return maximum(height, 0.0) * maximum(width, 0.0)


def _overlap(area: Expr, other: Expr, shared: Expr, threshold: Scalar) -> Expr:
    union = area + other - shared
    return (area > 0.0) & (other > 0.0) & (union > 0.0) & (shared / union > threshold)


def _list(t: Tracer, picks: Tensor, counts: Tensor, total: AnyDim) -> Tensor:
    """The rows (batch, class, box) of all selected boxes."""

    def body(k: Builder, out: Tensor) -> None:
        row = k.var(0, I32)
        with k.loop(counts.shape[0]) as b, k.loop(counts.shape[1]) as c, k.loop(counts[b, c]) as n:
            for column, value in enumerate((b, c, picks[b, c, n])):
                k.store(out, (row.get, column), cast(value, I64))
            row.set(row.get + 1)

    return t.loops("nms_list", [picks, counts], [((total, 3), I64)], body)[0]


@op("ImageDecoder", since=20)
def image_decoder(t: Tracer, encoded: Tensor, *, pixel_format: str = "RGB") -> Tensor:
    """The bytes of an encoded image -> uint8 (height, width, channels), in any format that Pillow reads.
    Spec: https://onnx.ai/onnx/operators/onnx__ImageDecoder.html"""
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise t.unsupported(f"pixel_format {pixel_format!r} is not known")
    channels = 1 if pixel_format == "Grayscale" else 3
    return t.host("decode_image", [encoded], [((None, None, channels), U8)], pixel_format=pixel_format)[0]
