"""`quantize`: weights of fewer bits for a model, chosen so that its outputs stay within a bound."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from pyruntime.arguments import checked
from pyruntime.onnx.model_file import opener
from pyruntime.quantization.host import Feeds, Host, Sessions
from pyruntime.quantization.options import Options
from pyruntime.quantization.quantized import Quantized
from pyruntime.quantization.steps import quantised

if TYPE_CHECKING:
    from onnx import ModelProto


class Quantize(Protocol):
    """The type of `quantize`."""

    def __call__(
        self, model: str | os.PathLike[str] | bytes | ModelProto, bits: int = ..., *, samples: Iterable[Feeds] = ...,
        max_error: float | None = ..., keep: Sequence[str] = ..., smallest: int = ..., block_size: int = ...,
        accuracy_level: int = ...,
    ) -> Quantized: ...  # fmt: skip


def quantizer(sessions: Sessions) -> Quantize:
    """`quantize` for a place with such sessions."""

    @checked
    def quantize(
        model: str | os.PathLike[str] | bytes | ModelProto,
        bits: int = 4,
        *,
        samples: Iterable[Feeds] = (),
        max_error: float | None = None,
        keep: Sequence[str] = (),
        smallest: int = 16384,
        block_size: int = 32,
        accuracy_level: int = 0,
    ) -> Quantized:
        """A model whose constant weights of MatMul, Gemm, Gather, Conv and ConvTranspose have fewer bits.

        bits: 4, 8 or 16 (half floats). Layers that cannot have so few get more, for example convolutions of 4 bits
            below opset 21
        samples: inputs by name, for the errors of the report
        max_error: bound of the error of each output on the samples, relative to its size. Layers whose own error is
            largest get more bits until the bound holds
        keep: patterns of names of layers that stay as they are, for example "lm_head" or "*/attn/*"; a node without a
            name has that of its first output
        smallest: weights with fewer elements stay as they are
        block_size: codes that share a scale; a power of 2 from 16 on
        accuracy_level: of MatMulNBits; 4 lets runtimes compute with 8-bit activations
        Errors: InvalidInput for options that do not fit; those of a session if the model cannot run on the samples.
        """
        samples = list(samples)
        options = Options(bits, max_error, keep, smallest, block_size, accuracy_level, bool(samples))
        options.check()
        return Host(samples, sessions).result(quantised(opener(model), options))

    return quantize
