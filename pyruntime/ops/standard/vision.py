"""NonMaxSuppression and ImageDecoder."""

# B batch, C classes, N boxes, K maximum number of boxes per class

from __future__ import annotations

import math

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32, I64, U8
from pyruntime.ir.expr import Expr, Scalar, cast, dim, maximum, minimum, select
from pyruntime.ir.kernel import Accum, Builder, Tensor
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
    planes = t.compute((boxes.shape[0], 5, boxes.shape[1]), lambda b, p, n: _corner(boxes, center_point_box, b, p, n))
    zero = t.scalar(0.0, F32)
    iou = t.reshape(iou_threshold, ()) if iou_threshold is not None else zero
    lowest = t.reshape(score_threshold, ()) if score_threshold is not None else t.scalar(-math.inf, F32)
    picks, counts = _pick(t, planes, t.cast(scores, F32), iou, lowest, keep)
    total = t.cast(t.reduce("sum", counts, [0, 1], keepdims=False), I64)
    return _list(t, picks, counts, t.ints(total, lower=0)[0])


def _corner(boxes: Tensor, centered: int, b: Expr, plane: Expr, n: Expr) -> Expr:
    """Planes y1, x1, y2, x2, area, with y1 <= y2 and x1 <= x2."""
    p = [cast(boxes[b, n, c], F32) for c in range(4)]
    if centered:
        x, y, w, h = p
        y1, x1, y2, x2 = y - h / 2.0, x - w / 2.0, y + h / 2.0, x + w / 2.0
    else:
        y1, x1, y2, x2 = minimum(p[0], p[2]), minimum(p[1], p[3]), maximum(p[0], p[2]), maximum(p[1], p[3])
    out = (y2 - y1) * (x2 - x1)
    for k, corner in ((3, x2), (2, y2), (1, x1), (0, y1)):
        out = select(plane < k + 1, corner, out)
    return out


def _pick(t: Tracer, planes: Tensor, scores: Tensor, iou: Tensor, lowest: Tensor, keep: AnyDim) -> tuple[Tensor, ...]:
    """The selected boxes in order, and their number. The scratch `left` holds the scores of the candidates, -inf for
    others.

    Shapes: planes (B, 5, N), scores (B, C, N) -> int32 (B, C, K), int32 (B, C)"""
    batch, classes, count = scores.shape

    def body(k: Builder, picks: Tensor, counts: Tensor, left: Tensor) -> None:
        with k.parallel(batch * classes) as unit:
            b = k.let(_quotient(unit, classes))
            c = k.let(unit - b * dim(classes))
            picked = k.var(0, I32)
            with k.loop(count, "vector") as n:
                score = scores[b, c, n]
                k.store(left, (unit, n), select(score > lowest.at(), score, -math.inf))
            best = k.var(_best(k, left, unit, count), F32)
            with k.while_((picked.get < dim(keep)) & (best.get > -math.inf)):
                at = k.var(0, I32)
                with k.while_(left[unit, at.get] != best.get):
                    at.set(at.get + 1)
                k.store(picks, (b, c, picked.get), at.get)
                picked.set(picked.get + 1)
                k.store(left, (unit, at.get), -math.inf)
                chosen = [k.let(planes[b, p, at.get]) for p in range(5)]
                with k.loop(count, "vector") as n:
                    over = _overlaps(chosen, [planes[b, p, n] for p in range(5)], iou.at())
                    k.store(left, (unit, n), select(over, -math.inf, left[unit, n]))
                best.set(_best(k, left, unit, count))
            k.store(counts, (b, c), picked.get)

    args = [planes, scores, iou, lowest]
    outputs = [((batch, classes, keep), I32), ((batch, classes), I32)]
    return t.loops("nms", args, outputs, body, [((batch * classes, count), F32)])


def _quotient(unit: Expr, classes: AnyDim) -> Expr:
    return unit if classes == 1 else unit / dim(classes)


def _best(k: Builder, left: Tensor, unit: Expr, count: AnyDim) -> Expr:
    best = k.var(-math.inf, F32)
    with k.loop(count, "vector") as n:
        k.emit(Accum(best.get.value, "max", left[unit, n]))
    return best.get


def _overlaps(a: list[Expr], b: list[Expr], threshold: Scalar) -> Expr:
    height = minimum(a[2], b[2]) - maximum(a[0], b[0])
    width = minimum(a[3], b[3]) - maximum(a[1], b[1])
    inter = maximum(height, 0.0) * maximum(width, 0.0)
    union = a[4] + b[4] - inter
    solid = (inter > 0.0) & (a[4] > 0.0) & (b[4] > 0.0) & (union > 0.0)
    return solid & (inter / union > threshold)


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
