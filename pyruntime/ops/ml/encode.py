"""Encoders and preparation of features.

Spec: https://onnx.ai/onnx/operators/#ai-onnx-ml"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer, decoded
from pyruntime.ir.dtype import F32, I64, STRING, DType, bounds
from pyruntime.ir.expr import Expr, Scalar, X, Y, as_expr, cast, const, dim, guard, isnan, select, sqrt
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.lib.keys import positions
from pyruntime.ops.ml import DOMAIN

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Weight


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def look_up(t: Tracer, x: Tensor, keys: Sequence[Any], values: Sequence[Any], to: DType, default: Any) -> Tensor:
    """values[k] where x = keys[k], else the default. Of equal keys the first counts."""
    if len(keys) != len(values):
        raise t.shape_error(f"{len(keys)} keys, but {len(values)} values")
    pairs: dict[Any, Any] = {}
    for k, v in zip(keys, values, strict=True):
        pairs.setdefault("nan" if k != k else k, (k, v))
    at = positions(t, x, [k for k, _ in pairs.values()])
    table = t.constant([v for _, v in pairs.values()], to)
    return t.compute(x.shape, lambda *i: guard(at.at(*i) >= 0, table[at.at(*i)], as_expr(default, to)), to)


def _list(t: Tracer, attrs: dict[str, Any], side: str) -> tuple[list[Any], DType]:
    """keys_* or values_* of a LabelEncoder: the one list that is present, and its type."""
    weight = attrs[f"{side}_tensor"]
    lists = [] if weight is None else [(decoded(t.elements(weight), weight.dtype), weight.dtype)]
    kinds = (("int64s", I64), ("strings", STRING), ("floats", F32))
    lists += [(list(values), dtype) for kind, dtype in kinds if (values := attrs[f"{side}_{kind}"])]
    if len(lists) != 1:
        raise t.unsupported(f"needs one list of {side}, has {len(lists)}")
    return lists[0]


@op("LabelEncoder", since=1, domain=DOMAIN)
def label_encoder_1(
    t: Tracer,
    x: Tensor,
    *,
    classes_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Tensor:
    """Classes to numbers or numbers to classes. Of equal classes the last counts, as in ONNX Runtime."""
    numbers = range(len(classes_strings))
    if x.dtype is STRING:
        return look_up(t, x, classes_strings[::-1], numbers[::-1], I64, default_int64)
    return look_up(t, x, numbers, classes_strings, STRING, default_string)


@op("LabelEncoder", since=2, domain=DOMAIN)
def label_encoder(
    t: Tracer, x: Tensor, *, default_float: float = -0.0, default_int64: int = -1, default_string: str = "_Unused",
    default_tensor: Weight | None = None, keys_floats: Sequence[float] = (), keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[str] = (), keys_tensor: Weight | None = None, values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (), values_strings: Sequence[str] = (), values_tensor: Weight | None = None,
) -> Tensor:  # fmt: skip
    attrs = dict(locals())
    keys, values = _list(t, attrs, "keys"), _list(t, attrs, "values")
    if keys[1] is not x.dtype:
        raise t.unsupported(f"keys of {keys[1]} for an input of {x.dtype}")
    to = values[1]
    default: Any = {STRING: default_string, F32: default_float, I64: default_int64}.get(to, -0.0 if to.is_float else -1)
    if default_tensor is not None:
        default = decoded(t.elements(default_tensor), default_tensor.dtype)[0]
    return look_up(t, x, keys[0], values[0], to, default)


@op("CategoryMapper", domain=DOMAIN)
def category_mapper(
    t: Tracer, x: Tensor, *, cats_int64s: Sequence[int], cats_strings: Sequence[str], default_int64: int = -1,
    default_string: str = "_Unused",
) -> Tensor:  # fmt: skip
    """Categories to numbers or numbers to categories. Of equal keys the last counts, as in ONNX Runtime."""
    texts, numbers = cats_strings[::-1], cats_int64s[::-1]
    if x.dtype is STRING:
        return look_up(t, x, texts, numbers, I64, default_int64)
    return look_up(t, x, numbers, texts, STRING, default_string)


@op("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(
    t: Tracer, x: Tensor, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (), zeros: int = 1
) -> Tensor:
    """(…) -> float32 (…, categories); an unknown category gives zeros, or an error if `zeros` is 0."""
    cats: Sequence[Any] = cats_strings if x.dtype is STRING else cats_int64s
    if not cats or cats_strings and cats_int64s:
        raise t.unsupported(f"an input of {x.dtype} needs categories of its type, and no others")
    at = positions(t, x if x.dtype is STRING else t.cast(x, I64), cats)

    def element(*i: Expr) -> Expr:
        place = at.at(*i[:-1])
        return cast(place == cast(i[-1], I64) if zeros else t.checked_index(place, len(cats)) == i[-1], F32)

    return t.compute((*x.shape, len(cats)), element)


# ── features ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _column(t: Tracer, values: Sequence[Any], x: Tensor, dtype: DType) -> Any:
    """A function of coordinates: one value for all columns (the last axis), or one per column."""
    if len(values) == 1:
        return lambda *_: const(values[0], dtype)
    t.require_equal(x.shape[-1], len(values), "columns and values differ in number")
    table = t.constant(values, dtype)
    return lambda *i: table[i[-1]]


@op("Scaler", domain=DOMAIN)
def scaler(t: Tracer, x: Tensor, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Tensor:
    """(x - offset) · scale, by column."""
    low, factor = _column(t, offset or [0.0], x, F32), _column(t, scale or [1.0], x, F32)
    return t.compute(x.shape, lambda *i: (cast(x.at(*i), F32) - low(*i)) * factor(*i))


@op("Imputer", domain=DOMAIN)
def imputer(
    t: Tracer, x: Tensor, *, imputed_value_floats: Sequence[float] = (), imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Tensor:  # fmt: skip
    old: Scalar = replaced_value_float if x.dtype.is_float else replaced_value_int64
    values: Sequence[Any] = imputed_value_floats if x.dtype.is_float else imputed_value_int64s
    if not values or imputed_value_floats and imputed_value_int64s:
        raise t.unsupported(f"an input of {x.dtype} needs imputed values of its type, and no others")
    new = _column(t, values, x, x.dtype)

    def element(*i: Expr) -> Expr:
        value = x.at(*i)
        is_old = isnan(value) if x.dtype.is_float and math.isnan(old) else value == old
        return select(is_old, new(*i), value)

    return t.compute(x.shape, element)


@op("Binarizer", domain=DOMAIN)
def binarizer(t: Tracer, x: Tensor, *, threshold: float = 0.0) -> Tensor:
    if not x.dtype.is_float:
        low, high = bounds(x.dtype)
        if not low <= threshold <= high:  # all elements exceed it, or none does (as for NaN)
            return t.fill(x.shape, int(threshold < low), x.dtype)
    limit = as_expr(threshold if x.dtype.is_float else math.floor(threshold), x.dtype)
    return t.compute(x.shape, lambda *i: cast(x.at(*i) > limit, x.dtype))


@op("Normalizer", domain=DOMAIN)
def normalizer(t: Tracer, x: Tensor, *, norm: str = "MAX") -> Tensor:
    """Rows divided by their largest element, their sum of magnitudes, or their Euclidean norm. A divisor of 0 leaves
    the row unchanged."""
    x = t.cast(x, F32)
    if norm == "MAX":
        by = t.reduce("max", x, [-1])
    elif norm == "L1":
        by = t.reduce("sum", x, [-1], of=abs(X))
    elif norm == "L2":
        by = t.reduce("sum", x, [-1], of=X * X)
        return t.map(select(Y > 0.0, X / sqrt(Y), X), x, by)
    else:
        raise t.unsupported(f"norm {norm!r} is not known")
    return t.map(select(Y == 0.0, X, X / Y), x, by)


@op("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(t: Tracer, x: Tensor, y: Tensor) -> Tensor:
    """Columns y of x: (…, C), (K) -> (…, K), or (C), (K) -> (1, K)"""
    at = t.reshape(y, (math.prod(y.shape),))
    rows = t.unsqueeze(x, [0]) if x.rank == 1 else x

    def column(n: Expr) -> Expr:
        return t.checked_index(at[n], rows.shape[-1])

    return t.compute((*rows.shape[:-1], at.shape[0]), lambda *i: rows.at(*i[:-1], column(i[-1])), x.dtype)


@op("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(t: Tracer, *xs: Tensor, inputdimensions: Sequence[int] = ()) -> Tensor:
    """Inputs concatenated as float32: (N, c) each, or (c) for one row; truncated or padded with 0 to
    inputdimensions."""
    if len(inputdimensions) not in (0, len(xs)):
        raise t.shape_error(f"{len(inputdimensions)} inputdimensions for {len(xs)} inputs")
    parts: list[Tensor] = []
    for n, x in enumerate(xs):
        x = t.unsqueeze(x, [0]) if x.rank == 1 else x
        width = inputdimensions[n] if inputdimensions else math.prod(x.shape[1:])
        flat = t.reshape(x, (x.shape[0], math.prod(x.shape[1:])))
        parts.append(_fit_width(t, t.cast(flat, F32), width))
    return t.concat(parts, 1)


def _fit_width(t: Tracer, x: Tensor, width: int) -> Tensor:
    if x.shape[1] == width:
        return x
    return t.compute((x.shape[0], width), lambda i, j: guard(j < dim(x.shape[1]), x[i, j], 0.0))


# ── maps ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@op("ZipMap", domain=DOMAIN)
def zip_map(
    t: Tracer, x: Tensor, *, classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = ()
) -> Tensor:
    raise t.unsupported("its result is a sequence of maps", "export the model without it: its input holds the scores")


@op("DictVectorizer", domain=DOMAIN)
def dict_vectorizer(
    t: Tracer, x: Any, *, int64_vocabulary: Sequence[int] = (), string_vocabulary: Sequence[str] = ()
) -> Tensor:
    raise t.unsupported("its input is a map", "feed a tensor with one column for each key")


@op("CastMap", domain=DOMAIN)
def cast_map(t: Tracer, x: Any, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> Tensor:
    raise t.unsupported("its input is a map", "feed a tensor with one column for each key")
