"""Converts a float32 model to half floats, or quantises it, by onnxruntime's own tools."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from kit.field.feeds import Feeds

# Activations that the tool quantises only on request, as quantisation-aware training does.
MORE = ["HardSwish", "HardSigmoid", "Tanh", "Erf"]


@dataclass(frozen=True)
class Static:
    """Static quantisation. activation, weight: "u8" or "s8"; qdq: with pairs of QuantizeLinear and DequantizeLinear
    around float operators, else with operators on codes; symmetric: zero points of activations are 0.
    Weights have seven bits, as the tool advises for processors that add products in 16 bits."""

    activation: str
    weight: str
    qdq: bool = True
    per_channel: bool = False
    symmetric: bool = False

    def __call__(self, model: onnx.ModelProto, feeds: Feeds) -> onnx.ModelProto:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.left: Iterator[Feeds] = iter([feeds])

            def get_next(self) -> Feeds | None:
                return next(self.left, None)

        kinds = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}
        ops = {node.op_type for node in model.graph.node}
        options: dict[str, Any] = {
            "quant_format": QuantFormat.QDQ if self.qdq else QuantFormat.QOperator,
            "activation_type": kinds[self.activation],
            "weight_type": kinds[self.weight],
            "per_channel": self.per_channel,
            "reduce_range": True,
            "extra_options": {"ActivationSymmetric": self.symmetric, "WeightSymmetric": True},
        }
        if self.qdq and ops & set(MORE):
            options["op_types_to_quantize"] = sorted(ops - {"Softmax", "LayerNormalization"})
        return _written(lambda path: quantize_static(model, path, Reader(), **options))


def dynamic(model: onnx.ModelProto, feeds: Feeds) -> onnx.ModelProto:
    """Weights of products in seven bits, activations quantised at run time."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    return _written(lambda path: quantize_dynamic(model, path, weight_type=QuantType.QInt8, reduce_range=True))


def half(model: onnx.ModelProto, feeds: Feeds) -> onnx.ModelProto:
    """Weights and activations in half floats, inputs and outputs in float32."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with warnings.catch_warnings():  # about numbers that half floats cannot represent
        warnings.simplefilter("ignore")
        return convert_float_to_float16(model, keep_io_types=True)


def decayed(model: onnx.ModelProto, feeds: Feeds) -> onnx.ModelProto:
    """Six in ten weights of products subnormal, as training with weight decay leaves unused filters."""
    rng = np.random.default_rng(5)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1:
            w = onnx.numpy_helper.to_array(tensor)
            small = np.where(rng.random(w.shape) < 0.6, w * np.float32(1e-38), w)
            tensor.CopyFrom(onnx.numpy_helper.from_array(small.astype(np.float32), tensor.name))
    return model


def _written(quantise: Callable[[str], None]) -> onnx.ModelProto:
    """The model that the tool writes to a file, without its warnings about preprocessing."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            quantise(str(path))
            return onnx.load(path)
    finally:
        logging.disable(before)


Scheme = Callable[[onnx.ModelProto, Feeds], onnx.ModelProto]
SCHEMES: dict[str, Scheme] = {
    "f32": lambda model, feeds: model,
    "f16": half,
    "decayed": decayed,
    "dynamic": dynamic,
    "qdq": Static("u8", "s8", per_channel=True),
    "qdq_tensor": Static("u8", "s8"),
    "qdq_s8s8": Static("s8", "s8", per_channel=True, symmetric=True),
    "qdq_s8s8_shifted": Static("s8", "s8"),
    "qdq_u8u8": Static("u8", "u8"),
    "qop": Static("u8", "s8", qdq=False, per_channel=True),
    "qop_s8s8": Static("s8", "s8", qdq=False, per_channel=True, symmetric=True),
    "qop_u8u8": Static("u8", "u8", qdq=False),
}
