"""Random numbers: a hash of a seed and the element's index, so that elements are independent of each other.

Without a seed attribute, the seed is derived from the node's name: a program gives the same numbers in every run. ONNX
prescribes distributions, not sequences of numbers."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, F32, I32, U32, DType
from pyruntime.ir.expr import Expr, X, Y, cast, const, cos, dim, log, select, sqrt
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import float_type, numeric
from pyruntime.ops.standard.cast import convert, dtype_of

Seed = int | Expr  # an expression: a seed that differs from run to run

_VARIED: dict[int, Expr] = {}  # by id of a tracer, bits that differ from run to run


@contextmanager
def varied(t: Tracer, *numbers: Expr) -> Iterator[None]:
    """Inside the block, random operators draw other numbers if one of these floats differs."""
    found: Expr = const(0, U32)
    for x in numbers:
        found = mix_bits(found * 0x9E3779B9 + cast(x, U32))
    _VARIED[id(t)] = found
    try:
        yield
    finally:
        del _VARIED[id(t)]


def _seed(t: Tracer, seed: float | None) -> Seed:
    own = zlib.crc32(t.node.encode() if seed is None else struct.pack("<f", seed))
    bits_of_run = _VARIED.get(id(t))
    return own if bits_of_run is None else bits_of_run ^ const(own, U32)


def mix_bits(x: Expr) -> Expr:
    """A bijection of 32 bits where every output bit depends on every input bit (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    return x ^ (x >> 16)


def bits(seed: Seed, shape: Sequence[AnyDim], at: Sequence[Expr], stream: int = 0) -> Expr:
    """32 random bits for the element at these coordinates. Each seed and stream starts at another point of one
    sequence."""
    number: Expr = const(0, I32)
    for c, step in zip(at, sh.strides(shape), strict=True):
        number = number + c * dim(step)
    if isinstance(seed, Expr):
        start = mix_bits(seed + const(stream, U32))
    else:
        start = const(zlib.crc32(struct.pack("<II", seed, stream)), U32)
    return mix_bits(cast(number, U32) * 0x9E3779B9 + start)


def uniform(seed: Seed, shape: Sequence[AnyDim], at: Sequence[Expr], stream: int = 0) -> Expr:
    """A float32 in [0, 1) with 24 random bits."""
    return cast(cast(bits(seed, shape, at, stream) >> 8, I32), F32) * 2.0**-24


def _positive(seed: Seed, shape: Sequence[AnyDim], at: Sequence[Expr], stream: int = 0) -> Expr:
    """A float32 in (0, 1)."""
    return uniform(seed, shape, at, stream) + 2.0**-25


def _uniform(t: Tracer, shape: Sequence[AnyDim], dtype: DType, low: float, high: float, seed: float | None) -> Tensor:
    s = _seed(t, seed)
    return t.compute(shape, lambda *i: cast(uniform(s, shape, i) * (high - low) + low, dtype))


def _normal(t: Tracer, shape: Sequence[AnyDim], dtype: DType, mean: float, scale: float, seed: float | None) -> Tensor:
    """The Box-Muller transform: √(-2 ln u) · cos 2πv."""
    s = _seed(t, seed)

    def element(*i: Expr) -> Expr:
        radius = sqrt(log(_positive(s, shape, i)) * -2.0)
        return cast(radius * cos(uniform(s, shape, i, 1) * (2 * math.pi)) * scale + mean, dtype)

    return t.compute(shape, element)


@op("RandomUniform")
def random_uniform(
    t: Tracer, *, shape: Sequence[int], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Tensor:
    return _uniform(t, shape, dtype_of(t, dtype), low, high, seed)


@op("RandomUniformLike")
def random_uniform_like(
    t: Tracer, x: Tensor, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Tensor:
    return _uniform(t, x.shape, dtype_of(t, dtype, x.dtype), low, high, seed)


@op("RandomNormal")
def random_normal(
    t: Tracer, *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return _normal(t, shape, dtype_of(t, dtype), mean, scale, seed)


@op("RandomNormalLike")
def random_normal_like(
    t: Tracer, x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Tensor:
    return _normal(t, x.shape, dtype_of(t, dtype, x.dtype), mean, scale, seed)


@op("Bernoulli", since=15)
def bernoulli(t: Tracer, p: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """1 with probability p, else 0."""
    s, out = _seed(t, seed), dtype_of(t, dtype, p.dtype)
    return t.compute(p.shape, lambda *i: cast(uniform(s, p.shape, i) < cast(p.at(*i), F32), out))


@op("Multinomial", since=7)
def multinomial(
    t: Tracer, logits: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    """Classes drawn with the probabilities softmax(logits): the largest logit + Gumbel noise.
    Shapes: (batch, classes) -> (batch, sample_size)"""
    batch, classes = logits.shape
    s, shape = _seed(t, seed), (batch, sample_size, classes)

    def noisy(*i: Expr) -> Expr:
        return cast(logits.at(i[0], i[2]), F32) - log(-log(_positive(s, shape, i)))

    return t.cast(t.reduce_compute("argmax", shape[:2], shape[2:], noisy), dtype_of(t, dtype))


# ── Dropout ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _unchanged(t: Tracer, x: Tensor, mask: DType) -> tuple[Tensor, Tensor | None]:
    """Inference: x, and a mask of ones."""
    return x, t.fill(x.shape, const(1, mask), mask) if len(t.wanted) > 1 and t.wanted[1] else None


def drop(t: Tracer, x: Tensor, ratio: Expr, seed: float | None, mask: DType) -> tuple[Tensor, Tensor]:
    """Training: each element is kept with probability 1 - ratio, and divided by it."""
    s, wide = _seed(t, seed), float_type(x.dtype)
    keep = t.compute(x.shape, lambda *i: uniform(s, x.shape, i) >= ratio)
    scale = cast(1.0 - ratio, wide)
    y = t.map(select(Y, cast(X, wide) / scale, const(0, wide)), numeric(t, x), keep)
    return convert(t, y, x.dtype), t.cast(keep, mask)


@op("Dropout")
def dropout_1(t: Tracer, x: Tensor, *, ratio: float = 0.5, is_test: int = 0) -> tuple[Tensor, Tensor | None]:
    return _unchanged(t, x, x.dtype) if is_test else drop(t, x, const(ratio, F32), None, x.dtype)


@op("Dropout", since=7)
def dropout_7(t: Tracer, x: Tensor, *, ratio: float = 0.5) -> tuple[Tensor, Tensor | None]:
    return _unchanged(t, x, x.dtype)


@op("Dropout", since=10)
def dropout_10(t: Tracer, x: Tensor, *, ratio: float = 0.5) -> tuple[Tensor, Tensor | None]:
    return _unchanged(t, x, BOOL)


@op("Dropout", since=12)
def dropout(
    t: Tracer, x: Tensor, ratio: Tensor | None = None, training_mode: Tensor | None = None, *, seed: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """Identity unless training_mode is true."""
    if training_mode is None or not t.static(t.reshape(training_mode, ()))[0]:
        return _unchanged(t, x, BOOL)
    share = const(0.5, F32) if ratio is None else cast(numeric(t, t.reshape(ratio, ())).at(), F32)
    return drop(t, x, share, seed, BOOL)
