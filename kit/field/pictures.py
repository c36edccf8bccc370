"""Networks for images: classifiers, detectors, segmentation. Arguments: a Net, the batch, whether to build it small."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from kit.field.builder import Net


def _picture(net: Net, batch: int | str, side: int | str) -> str:
    return net.input("x", [batch, 3, side, side])


def _classified(net: Net, x: str, channels: int, classes: int) -> str:
    flat = net("Flatten", net("GlobalAveragePool", x))
    return str(net("Gemm", flat, net.weight(classes, channels), net.weight(classes, fan=100), transB=1))


def residual(net: Net, batch: int, small: bool) -> ModelProto:
    """Bottlenecks, as in ResNet-50."""
    width, side, depth = (8, 32, 1) if small else (32, 160, 2)
    x = net.conv(_picture(net, batch, side), 3, width, 7, 2, act="Relu")
    x = net("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = width
    for stage in range(1 if small else 4):
        inner = width << stage
        for block in range(depth):
            stride = 2 if block == 0 and stage else 1
            y = net.conv(net.conv(x, channels, inner, act="Relu"), inner, inner, 3, stride, act="Relu")
            y = net.conv(y, inner, inner * 4)
            same = x if block else net.conv(x, channels, inner * 4, 1, stride)
            x, channels = net("Relu", net("Add", y, same)), inner * 4
    return net.model(_classified(net, x, channels, 10 if small else 1000))


def _split_block(net: Net, x: str, channels: int, out: int, depth: int, act: str) -> str:
    """A split, bottlenecks on one half, a concatenation of all: C2f of YOLOv8."""
    half = out // 2
    both = net("Split", net.conv(x, channels, out, act=act), outputs=2, axis=1)
    for _ in range(depth):
        y = net.conv(net.conv(both[-1], half, half, 3, act=act), half, half, 3, act=act)
        both.append(net("Add", both[-1], y))
    return net.conv(net("Concat", *both, axis=1), half * (2 + depth), out, act=act)


def _upsampled(net: Net, x: str, mode: str = "nearest") -> str:
    scales = net.constant([1, 1, 2, 2], np.float32)
    how = {"mode": mode, "coordinate_transformation_mode": "asymmetric"} if mode == "nearest" else {"mode": mode}
    return str(net("Resize", x, "", scales, nearest_mode="floor", **how))


def detector(net: Net, batch: int, small: bool) -> ModelProto:
    """A detector like YOLOv8: split blocks with SiLU, pyramid pooling, a top-down and a bottom-up path, three heads."""
    width, side, act, count = (8, 32, "silu", 2) if small else (16, 256, "silu", 4)
    x = net.conv(_picture(net, batch, side), 3, width, 3, 2, act=act)
    levels = []
    for _ in range(count):
        width *= 2
        x = _split_block(net, net.conv(x, width // 2, width, 3, 2, act=act), width, width, 1, act)
        levels.append((x, width))
    pooled = [net.conv(x, width, width // 2, act=act)]
    for _ in range(3):
        pooled.append(net("MaxPool", pooled[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]))
    ways = [(net.conv(net("Concat", *pooled, axis=1), width * 2, width, act=act), width)]
    for below, channels in levels[-2:0:-1] or levels[:1]:
        top, above = ways[-1]
        both = net("Concat", _upsampled(net, top), below, axis=1)
        ways.append((_split_block(net, both, above + channels, channels, 1, act), channels))
    heads = [ways.pop()]
    while ways:
        (below, channels), (x, out) = heads[-1], ways.pop()
        both = net("Concat", net.conv(below, channels, channels, 3, 2, act=act), x, axis=1)
        heads.append((_split_block(net, both, channels + out, out, 1, act), out))
    hidden = heads[0][1]
    found = [net.conv(net.conv(x, channels, hidden, 3, act=act), hidden, 24) for x, channels in heads]
    boxes, scores = net(
        "Split", net("Concat", *[net.reshape(y, batch, 24, -1) for y in found], axis=2), net.constant([4, 20]),
        outputs=2, axis=1,
    )  # fmt: skip
    return net.model(net("Concat", boxes, net("Sigmoid", scores), axis=1))


def light_detector(net: Net, batch: int, small: bool) -> ModelProto:
    """Depthwise 3x3 and 5x5 with HardSwish, squeeze and excitation, and an additive feature pyramid; larger images."""
    width, side = (8, 64) if small else (16, 416)
    x = net.conv(_picture(net, batch, side), 3, width, 3, 2, act="hardswish")
    levels, channels = [], width
    for stage, size in enumerate((3, 3, 5, 5)):
        x = net.conv(x, channels, channels, size, 2, group=channels, act="hardswish")
        if stage > 1:
            x = _gated(net, x, channels)
        x = net.conv(x, channels, channels * 2, act="hardswish")
        channels *= 2
        x = net.conv(x, channels, channels, size, group=channels, act="hardswish")
        x = net.conv(x, channels, channels, act="hardswish")
        levels.append((x, channels))
    top, outputs = "", []
    for x, count in levels[:0:-1]:
        x = net.conv(x, count, 4 * width, act="hardswish")
        top = net("Add", x, _upsampled(net, top)) if top else x
        y = net.conv(top, 4 * width, 4 * width, 5, group=4 * width, act="hardswish")
        y = net("Sigmoid", net.conv(y, 4 * width, 12))
        outputs.append(net.reshape(y, batch, 12, -1))
    return net.model(net("Concat", *outputs, axis=2))


def _gated(net: Net, x: str, channels: int) -> str:
    """Squeeze and excitation: channels times a function of their means."""
    y = net.conv(net("GlobalAveragePool", x), channels, channels // 4, act="Relu")
    return str(net("Mul", x, net("HardSigmoid", net.conv(y, channels // 4, channels), alpha=1 / 6)))


def shuffled(net: Net, batch: int, small: bool) -> ModelProto:
    """Two branches and a channel shuffle: ShuffleNet V2."""
    side, stages = (32, [(16, 1)]) if small else (224, [(64, 3), (128, 7), (256, 3)])
    channels = 8 if small else 24
    x = net.conv(_picture(net, batch, side), 3, channels, 3, 2, act="Relu")
    x = net("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    extent = side // 4
    for out, depth in stages:
        extent //= 2
        half = out // 2
        left = net.conv(net.conv(x, channels, channels, 3, 2, group=channels), channels, half, act="Relu")
        right = net.conv(x, channels, half, act="Relu")
        x = _shuffle(net, left, _branch(net, right, half, 2), batch, out, extent)
        for _ in range(depth):
            left, right = net("Split", x, outputs=2, axis=1)
            x = _shuffle(net, left, _branch(net, net.conv(right, half, half, act="Relu"), half, 1), batch, out, extent)
        channels = out
    return net.model(_classified(net, x, channels, 10 if small else 1000))


def _branch(net: Net, x: str, half: int, stride: int) -> str:
    return net.conv(net.conv(x, half, half, 3, stride, group=half), half, half, act="Relu")


def _shuffle(net: Net, left: str, right: str, batch: int, channels: int, extent: int) -> str:
    both = net.reshape(net("Concat", left, right, axis=1), batch, 2, channels // 2, extent, extent)
    return net.reshape(net.transpose(both, 0, 2, 1, 3, 4), batch, channels, extent, extent)


def ghosts(net: Net, batch: int, small: bool) -> ModelProto:
    """Half of the channels by a convolution, half by a cheap depthwise filter of these: GhostNet."""
    side, stages = (32, [(16, 1)]) if small else (224, [(24, 3), (40, 3), (80, 5), (160, 5)])
    channels = 16
    x = net.conv(_picture(net, batch, side), 3, channels, 3, 2, act="Relu")
    for n, (out, stride) in enumerate([(out, 2 - (m > 0)) for out, depth in stages for m in range(depth)]):
        same, size = x, 5 if n % 2 else 3
        x = _ghost(net, x, channels, out * 3, "Relu")
        if stride == 2:
            x = net.conv(x, out * 3, out * 3, size, 2, group=out * 3)
        x = _ghost(net, _gated(net, x, out * 3) if n % 3 == 2 else x, out * 3, out, "")
        x = net("Add", x, same) if stride == 1 and channels == out else x
        channels = out
    return net.model(_classified(net, x, channels, 10 if small else 1000))


def _ghost(net: Net, x: str, channels: int, out: int, act: str) -> str:
    first = net.conv(x, channels, out // 2, act=act)
    return str(net("Concat", first, net.conv(first, out // 2, out // 2, 3, group=out // 2, act=act), axis=1))


def wide_windows(net: Net, batch: int, small: bool) -> ModelProto:
    """Depthwise 7x7, a normalisation over channels, and two products with GELU between: ConvNeXt."""
    side, stages = (32, [(16, 1)]) if small else (192, [(40, 2), (80, 2), (160, 3), (320, 1)])
    x, channels = _picture(net, batch, side), 3
    for n, (out, depth) in enumerate(stages):
        step = 2 if n else 4
        pads = {"kernel_shape": [step, step], "strides": [step, step]}
        x = net("Conv", x, net.weight(out, channels, step, step), net.weight(out, fan=100), **pads)
        channels = out
        for _ in range(depth):
            y = net.transpose(net.conv(x, channels, channels, 7, group=channels), 0, 2, 3, 1)
            y = net.linear(net.norm(y, channels), channels, 4 * channels, "gelu")
            x = net("Add", x, net.transpose(net.linear(y, 4 * channels, channels), 0, 3, 1, 2))
    return net.model(_classified(net, x, channels, 10 if small else 1000))


def inverted(net: Net, batch: int, small: bool) -> ModelProto:
    """Inverted residuals with ReLU6: MobileNet V2."""
    side, stages = (32, [(16, 2, 2)]) if small else (224, [(24, 2, 2), (32, 3, 2), (64, 3, 2), (96, 3, 1), (160, 2, 2)])
    channels = 16
    x = net.conv(_picture(net, batch, side), 3, channels, 3, 2, act="relu6")
    for out, depth, first in stages:
        for n in range(depth):
            wide = channels * 6
            y = net.conv(x, channels, wide, act="relu6")
            y = net.conv(y, wide, wide, 3, 1 if n else first, group=wide, act="relu6")
            y = net.conv(y, wide, out)
            x, channels = (net("Add", x, y) if n else y), out
    return net.model(_classified(net, x, channels, 10 if small else 1000))


def nested(net: Net, batch: int, small: bool) -> ModelProto:
    """U-shaped blocks in a U with dilated ends, joined by Concat and linear Resize: U²-Net."""
    width, side = (8, 32) if small else (16, 160)
    x = _u_block(net, _picture(net, batch, side), 3, width, 2 if small else 4)
    low = _u_block(net, _halved(net, x), width, width * 2, 1 if small else 3)
    deep = _u_block(net, _halved(net, low), width * 2, width * 2, 1 if small else 2)
    low = _u_block(net, net("Concat", _upsampled(net, deep, "linear"), low, axis=1), width * 4, width, 1)
    x = _u_block(net, net("Concat", _upsampled(net, low, "linear"), x, axis=1), width * 2, width, 1)
    return net.model(net("Sigmoid", net.conv(x, width, 1, 3)))


def _halved(net: Net, x: str) -> str:
    return str(net("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))


def _u_block(net: Net, x: str, channels: int, out: int, depth: int) -> str:
    inner = out // 2
    same = net.conv(x, channels, out, 3, act="Relu")
    steps = [net.conv(same, out, inner, 3, act="Relu")]
    for _ in range(depth):
        steps.append(net.conv(_halved(net, steps[-1]), inner, inner, 3, act="Relu"))
    y = net.conv(steps[-1], inner, inner, 3, dilation=2, act="Relu")
    for n, step in enumerate(reversed(steps)):
        y = _upsampled(net, y, "linear") if n else y
        y = net.conv(net("Concat", y, step, axis=1), inner * 2, out if n == depth else inner, 3, act="Relu")
    return str(net("Add", y, same))


FAMILIES = {
    "residual": residual, "detector": detector, "light_detector": light_detector, "shuffled": shuffled,
    "ghosts": ghosts, "wide_windows": wide_windows, "inverted": inverted, "nested": nested,
}  # fmt: skip
