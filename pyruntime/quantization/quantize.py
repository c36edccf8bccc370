"""`quantize`: weights of fewer bits for a model, chosen so that its outputs stay within a bound; `quantize_static`:
weights and activations of 8 bits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyruntime.arguments import checked
from pyruntime.onnx.model_file import opener
from pyruntime.quantization.host import Feeds, Host, Sessions
from pyruntime.quantization.options import Options, StaticOptions
from pyruntime.quantization.quantized import Quantized
from pyruntime.quantization.static import static
from pyruntime.quantization.steps import quantised

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True, slots=True)
class Quantizers:
    """The functions for a place with such sessions."""

    sessions: Sessions

    @checked
    def quantize(
        self,
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
        given = list(samples)
        options = Options(bits, max_error, keep, smallest, block_size, accuracy_level, bool(given))
        options.check()
        return Host(given, self.sessions).result(quantised(opener(model), options))

    @checked
    def quantize_static(
        self,
        model: str | os.PathLike[str] | bytes | ModelProto,
        samples: Iterable[Feeds],
        *,
        calibration: str = "range",
        percentile: float = 99.99,
        keep: Sequence[str] = (),
        trainable: bool = False,
    ) -> Quantized:
        """A model whose Conv, Gemm and MatMul with constant weights, and what lies between them, compute with codes of
        8 bits: weights with a scale for each output channel, activations with one scale and a zero point each.

        samples: inputs by name, from which the ranges of activations follow, and the errors of the report
        calibration: "range" of all numbers; "percentile": without so many of the outermost; "entropy": the range whose
            codes have the histogram that is nearest to that of the numbers
        keep: patterns of names of layers that stay floats
        trainable: weights stay floats before QuantizeLinear, so that a training session with `scales="lsq"` trains them
        Errors: InvalidInput for a model without such a layer or below opset 13, or samples without numbers.
        """
        given = list(samples)
        options = StaticOptions(calibration, percentile, keep, trainable, bool(given))
        options.check()
        return Host(given, self.sessions).result(static(opener(model), options))
