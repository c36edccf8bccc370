"""Networks for sequences: text, speech, windows of an image, lines of writing. Arguments as in pictures.py."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto

from kit.field.builder import Net


def encoder(net: Net, batch: int, small: bool) -> ModelProto:
    """Token and position embeddings, then attention and GELU: BERT."""
    width, length, depth, heads = (16, 8, 1, 2) if small else (192, 64, 4, 4)
    ids = net.input("ids", [batch, length], TensorProto.INT64)
    x = net("Gather", net.weight(100, width, fan=1), ids)
    x = net.norm(net("Add", x, net.weight(1, length, width, fan=1)), width)
    for _ in range(depth):
        x = net.norm(net("Add", x, net.attention(x, batch, length, width, heads)), width)
        y = net.linear(net.linear(x, width, 4 * width, "gelu"), 4 * width, width)
        x = net.norm(net("Add", x, y), width)
    return net.model(x)


def windows(net: Net, batch: int, small: bool) -> ModelProto:
    """Attention in windows of an image, shifted by half a window in every second block: Swin."""
    width, places, size, depth, heads = (16, 8, 4, 2, 2) if small else (96, 28, 7, 4, 3)
    x = net.input("x", [batch, 3, places * 4, places * 4])
    x = net("Conv", x, net.weight(width, 3, 4, 4), net.weight(width, fan=100), kernel_shape=[4, 4], strides=[4, 4])
    x = net.transpose(x, 0, 2, 3, 1)
    count, by = places // size, size // 2
    for n in range(depth):
        y = net.norm(x, width)
        if n % 2:
            y = net.roll(net.roll(y, 1, -by + places), 2, -by + places)
        y = net.transpose(net.reshape(y, batch, count, size, count, size, width), 0, 1, 3, 2, 4, 5)
        y = net.attention(net.reshape(y, -1, size * size, width), -1, size * size, width, heads)
        y = net.transpose(net.reshape(y, batch, count, count, size, size, width), 0, 1, 3, 2, 4, 5)
        y = net.reshape(y, batch, places, places, width)
        if n % 2:
            y = net.roll(net.roll(y, 1, by), 2, by)
        x = net("Add", x, y)
        y = net.linear(net.linear(net.norm(x, width), width, 4 * width, "gelu"), 4 * width, width)
        x = net("Add", x, y)
    return net.model(net("ReduceMean", net.norm(x, width), axes=[1, 2], keepdims=0))


def conformer(net: Net, batch: int, small: bool) -> ModelProto:
    """Subsampled frames, then MLPs with SiLU, attention, and a gated 1-D convolution of 31 frames: Conformer."""
    width, frames, depth, heads = (16, 16, 1, 2) if small else (144, 400, 3, 4)
    x = net.input("x", [batch, 40, frames])
    x = net.conv(net.conv(x, 40, width, (5,), 2, act="Relu"), width, width, (5,), 2, act="Relu")
    x = net.transpose(x, 0, 2, 1)
    half = net.constant(0.5, np.float32)
    for _ in range(depth):
        x = net("Add", x, net("Mul", _wide(net, x, width), half))
        x = net("Add", x, net.attention(net.norm(x, width), batch, frames // 4, width, heads))
        y = net.transpose(net.norm(x, width), 0, 2, 1)
        left, gate = net("Split", net.conv(y, width, width * 2, (1,)), outputs=2, axis=1)
        y = net.conv(net("Mul", left, net("Sigmoid", gate)), width, width, (31,), group=width, act="silu")
        x = net("Add", x, net.transpose(net.conv(y, width, width, (1,)), 0, 2, 1))
        x = net.norm(net("Add", x, net("Mul", _wide(net, x, width), half)), width)
    return net.model(net.linear(x, width, 64))


def _wide(net: Net, x: str, width: int) -> str:
    return net.linear(net.linear(net.norm(x, width), width, 4 * width, "silu"), 4 * width, width)


def speech(net: Net, batch: int, small: bool) -> ModelProto:
    """Separable 1-D convolutions of 33 to 75 frames with ReLU and sums: QuartzNet."""
    width, frames, sizes = (16, 48, (11,)) if small else (192, 400, (33, 51, 75))
    x = net.conv(net.input("x", [batch, 64, frames]), 64, width, (11,), 2, act="Relu")
    for size in sizes:
        same = net.conv(x, width, width, (1,))
        for _ in range(1 if small else 2):
            x = net.conv(net.conv(x, width, width, (size,), group=width), width, width, (1,), act="Relu")
        x = net("Relu", net("Add", x, same))
    return net.model(net("LogSoftmax", net.transpose(net.conv(x, width, 32, (1,)), 0, 2, 1), axis=-1))


def tagger(net: Net, batch: int, small: bool) -> ModelProto:
    """Embeddings, two layers of a GRU in both directions, and a product: `batch` sentences of 32 words."""
    width, words, hidden = (8, 5, 8) if small else (128, 32, 128)
    ids = net.input("ids", [words, batch], TensorProto.INT64)
    x = net("Gather", net.weight(100, width, fan=1), ids)
    for _ in range(2):
        w, r = net.weight(2, 3 * hidden, width, fan=width), net.weight(2, 3 * hidden, hidden, fan=hidden)
        y = net("GRU", x, w, r, net.weight(2, 6 * hidden, fan=100), hidden_size=hidden, direction="bidirectional",
                linear_before_reset=1, outputs=2)[0]  # fmt: skip
        x, width = net.reshape(net.transpose(y, 0, 2, 1, 3), words, batch, 2 * hidden), 2 * hidden
    return net.model(net("Softmax", net.linear(x, width, 20), axis=-1))


def writing(net: Net, batch: int | str, small: bool) -> ModelProto:
    """Lines of writing with unknown dims: convolutions, an LSTM over the columns, and letters: OCR."""
    width = 8 if small else 32
    x = net.input("x", ["batch", 1, "height", "width"])
    x = net.conv(x, 1, width, 3, act="Relu")
    for n in range(2):
        x = net("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x = net.conv(x, width << n, width << (n + 1), 3, act="hardswish")
        x = net.conv(x, width << (n + 1), width << (n + 1), 5, group=width << (n + 1), act="hardswish")
    channels = width * 4
    x = net("Squeeze", net("ReduceMean", x, axes=[2], keepdims=1), net.constant([2]))
    x = net.transpose(x, 2, 0, 1)
    hidden = channels // 2
    w, r = net.weight(2, 4 * hidden, channels, fan=channels), net.weight(2, 4 * hidden, hidden, fan=hidden)
    y = net("LSTM", x, w, r, net.weight(2, 8 * hidden, fan=100), hidden_size=hidden, direction="bidirectional",
            outputs=1)[0]  # fmt: skip
    shape = net("Shape", y)
    sizes = [net("Gather", shape, net.constant([n])) for n in (0, 2)]
    flat = net("Concat", *sizes, net.constant([-1]), axis=0)
    y = net("Reshape", net.transpose(y, 0, 2, 1, 3), flat)
    return net.model(net("Softmax", net.linear(y, 2 * hidden, 96), axis=-1))


def text_finder(net: Net, batch: int | str, small: bool) -> ModelProto:
    """An image of any extents: a pyramid resized to shapes known at run time, and a map of text: DBNet."""
    width = 8 if small else 16
    x = net.conv(net.input("x", ["batch", 3, "height", "width"]), 3, width, 3, 2, act="hardswish")
    levels = []
    for n in range(3):
        x = net.conv(x, width << n, width << (n + 1), 1, act="hardswish")
        x = net.conv(x, width << (n + 1), width << (n + 1), 5, 2, group=width << (n + 1), act="hardswish")
        levels.append(net.conv(x, width << (n + 1), width * 2))
    top = levels.pop()
    while levels:
        below = levels.pop()
        top = net("Add", below, _resized(net, top, net("Shape", below)))
    y = net.conv(top, width * 2, width, 3, act="Relu")
    stride = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y = net("ConvTranspose", y, net.weight(width, width // 2, 2, 2), net.weight(width // 2, fan=100), **stride)
    return net.model(net("Sigmoid", net.conv(y, width // 2, 1, 3)))


def _resized(net: Net, x: str, shape: str) -> str:
    where = [net("Slice", source, *[net.constant([n]) for n in (start, end)])
             for source, start, end in ((net("Shape", x), 0, 2), (shape, 2, 4))]  # fmt: skip
    size = net("Concat", *where, axis=0)
    return str(net("Resize", x, "", "", size, mode="nearest", coordinate_transformation_mode="asymmetric",
                   nearest_mode="floor"))  # fmt: skip


FAMILIES = {
    "encoder": encoder, "windows": windows, "conformer": conformer, "speech": speech, "tagger": tagger,
    "writing": writing, "text_finder": text_finder,
}  # fmt: skip
