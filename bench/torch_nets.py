"""Networks as people write them in PyTorch, in small sizes, for `bench.torch_export`, which needs torch.

Each has its own way to hold parameters, or constants that are none: masks, positions, means of pixels, tied weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.torch_texts import CLASSES, T5, TOKENS, WIDTH, WORDS, Bert, Gpt, Llama, Tagger, TextClassifier

BATCH, SIDE = 4, 16
Batch = tuple[tuple[Tensor, ...], Tensor]  # inputs, target


@dataclass(frozen=True)
class Net:
    """A module, what a batch is, and the loss of its first output, by our name of it."""

    make: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: str = "cross_entropy"


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.down = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.down(x))


class MobileBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = 2 * channels
        self.layers = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.Hardswish(),
            nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 4, 1), nn.ReLU(), nn.Conv2d(4, channels, 1), nn.Hardsigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y * self.squeeze(y)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = self.double(3, 8), self.double(8, 16)
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, 2), self.double(16, 8)
        self.head = nn.Conv2d(8, 3, 1)

    def double(self, before: int, after: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(2, after), nn.SiLU(),
            nn.Conv2d(after, after, 3, padding=1), nn.InstanceNorm2d(after, affine=True), nn.LeakyReLU(0.1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        return self.head(self.last(torch.cat([a, self.up(b)], 1)))


class Normalised(nn.Module):
    """Pixels minus their mean, over their deviation, as buffers; then a plain network with learned slopes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.48, 0.45, 0.4]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.23, 0.22, 0.22]).view(1, 3, 1, 1))
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.PReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.PReLU(8), nn.Flatten(),
            nn.LazyLinear(CLASSES),
        )  # fmt: skip
        self.layers(torch.zeros(1, 3, SIDE, SIDE))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers((x - self.mean) / self.std)


class Vision(nn.Module):
    """Patches, a class token, learned positions, torch's own encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, 17, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1) + self.positions
        return self.head(self.norm(self.encoder(y))[:, 0])


class MixerBlock(nn.Module):
    """With LayerScale."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.tokens = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.channels = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(approximate="tanh"), nn.Linear(32, WIDTH))
        self.gamma1, self.gamma2 = (nn.Parameter(torch.full((WIDTH,), 0.1)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.gamma1 * self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.gamma2 * self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, WIDTH, 4, 4), nn.Sequential(MixerBlock(), MixerBlock())
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class WaveNet(nn.Module):
    """Dilated causal convolutions with gates and skips, whose filters have a norm of their own (weight_norm)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(2, 8, 1), nn.Conv1d(8, CLASSES, 1)
        self.gates = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**n) for n in range(3))
        self.skips = nn.ModuleList(nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 16, 1)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.first(x), torch.zeros(())
        for n, (gate, skip) in enumerate(zip(self.gates, self.skips, strict=True)):
            a, b = gate(F.pad(x, (2**n, 0))).chunk(2, 1)
            more, part = skip(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, total = x + more, total + part
        return self.last(F.relu(total))


class AutoEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 4, 3, 2, 1), nn.Softplus())
        self.decoder = nn.Sequential(nn.ConvTranspose2d(4, 8, 4, 2, 1), nn.SELU(), nn.ConvTranspose2d(8, 3, 4, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.decoder(self.encoder(x)))


class Variational(nn.Module):
    """Without sampling; the logarithm of the variance is clamped."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.mean, self.spread = nn.Linear(12, 16), nn.Linear(16, 3), nn.Linear(16, 3)
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 12))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.encoder(x))
        mean, spread = self.mean(h), self.spread(h).clamp(-4, 4)
        return self.decoder(mean + 0.1 * torch.exp(0.5 * spread))


class Siamese(nn.Module):
    """One encoder for two pictures; the score is a scaled distance."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(8))
        self.scale, self.bias = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor([0.5]))
        self.encoder(torch.zeros(1, 3, SIDE, SIDE))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        a, b = F.normalize(self.encoder(a)), F.normalize(self.encoder(b))
        return self.bias - self.scale * (a - b).pow(2).sum(1, keepdim=True)


class PointNet(nn.Module):
    """Layers for each point, then the largest of all, with BatchNorm1d. Biases before it have no gradient but rounding,
    which Adam makes steps of."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(
            nn.Conv1d(3, 16, 1, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 16, 1, bias=False)
        )
        self.whole = nn.Sequential(nn.Linear(16, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(self.each(x).amax(2))


class DeepSets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.each, self.rest = nn.Linear(3, 16), nn.Linear(3, 16)
        self.whole = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.each(x) - self.rest(x.mean(1, keepdim=True)))
        return self.whole(y.sum(1) / 10)


class Graph(nn.Module):
    """Two graph convolutions over one graph, whose normalised adjacency is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        links = torch.eye(8) + torch.diag(torch.ones(7), 1) + torch.diag(torch.ones(7), -1)
        self.register_buffer("adjacency", links / links.sum(1, keepdim=True))
        self.one, self.two = nn.Linear(6, 16, bias=False), nn.Linear(16, CLASSES, bias=False)
        self.bias1, self.bias2 = nn.Parameter(torch.zeros(16)), nn.Parameter(torch.zeros(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.adjacency @ self.one(x) + self.bias1)
        return (self.adjacency @ self.two(x) + self.bias2).transpose(1, 2)


class Experts(nn.Module):
    """A softmax over four experts, whose weights are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.temperature = nn.Linear(12, 4), 2.0
        self.w1, self.b1 = nn.Parameter(torch.randn(4, 12, 16) * 0.3), nn.Parameter(torch.zeros(4, 1, 16))
        self.w2, self.b2 = nn.Parameter(torch.randn(4, 16, CLASSES) * 0.3), nn.Parameter(torch.zeros(4, 1, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        shares = torch.softmax(self.router(x) / self.temperature, -1)
        y = torch.bmm(F.gelu(torch.baddbmm(self.b1, x.expand(4, -1, -1), self.w1)), self.w2) + self.b2
        return (shares.T[..., None] * y).sum(0)


class Convolutional(nn.Module):
    """With Dropout, which drops nothing here so that the losses can be compared."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.Tanh(),
            nn.AvgPool2d(2), nn.Flatten(), nn.Dropout(0.0), nn.Linear(128, CLASSES),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.blocks, self.head = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2)), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Dense(nn.Module):
    """BatchNormalization before each convolution, which exporters cannot fold."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(20), nn.Linear(20, CLASSES)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(n), nn.ReLU(), nn.Conv2d(n, 4, 3, padding=1, bias=False)) for n in (8, 12, 16)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(F.relu(self.norm(x)).mean((2, 3)))


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(WORDS, WIDTH, mode="mean"), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x))


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, 8, 3, 2, 1), nn.Sequential(MobileBlock(8), MobileBlock(8))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 1))


def labels(classes: int, *shape: int) -> Tensor:
    return torch.randint(0, classes, shape)


def picture() -> Tensor:
    return torch.randn(BATCH, 3, SIDE, SIDE)


def ids() -> Tensor:
    return labels(WORDS, BATCH, TOKENS)


def pictures() -> Batch:
    return (picture(),), labels(CLASSES, BATCH)


def texts() -> Batch:
    return (ids(),), labels(CLASSES, BATCH)


def next_words() -> Batch:
    """Logits of (N, T, words) and labels of (N, T)."""
    return (ids(),), ids()


def padded() -> Batch:
    mask = (torch.arange(TOKENS)[None] < torch.tensor([10, 8, 6, 9])[:, None]).float()
    return (ids(), mask), labels(CLASSES, BATCH)


def same(x: Tensor) -> Batch:
    return (x,), x


def pairs() -> Batch:
    return (picture(), picture()), labels(2, BATCH, 1).float()


def rows(target: Callable[[Tensor], Tensor], *shape: int) -> Callable[[], Batch]:
    def made() -> Batch:
        x = torch.randn(shape)
        return (x,), target(x)

    return made


NETS = {
    "mlp": Net(perceptron, rows(lambda x: x.sum(1, keepdim=True) + 3, BATCH, 12), "mse"),
    "cnn": Net(Convolutional, pictures),
    "resnet": Net(ResNet, pictures),
    "densenet": Net(Dense, pictures),
    "mobilenet": Net(MobileNet, pictures),
    "unet": Net(UNet, lambda: ((picture(),), labels(3, BATCH, SIDE, SIDE))),
    "normalised prelu": Net(Normalised, pictures),
    "vit": Net(Vision, pictures),
    "mixer layerscale": Net(Mixer, pictures),
    "bert": Net(Bert, padded),
    "gpt": Net(Gpt, next_words),
    "t5": Net(T5, lambda: ((ids(), ids()), ids())),
    "llama": Net(Llama, next_words),
    "lstm tagger": Net(Tagger, lambda: ((ids(),), labels(CLASSES, BATCH, TOKENS))),
    "gru classifier": Net(TextClassifier, texts),
    "bags of words": Net(Bags, texts),
    "wavenet": Net(WaveNet, rows(lambda x: labels(CLASSES, BATCH, 20), BATCH, 2, 20)),
    "autoencoder": Net(AutoEncoder, lambda: same(torch.rand(BATCH, 3, SIDE, SIDE)), "bce of probabilities"),
    "vae": Net(Variational, lambda: same(torch.randn(BATCH, 12)), "huber"),
    "siamese": Net(Siamese, pairs, "bce"),
    "pointnet": Net(PointNet, rows(lambda x: labels(CLASSES, BATCH), BATCH, 3, 20)),
    "deepsets": Net(DeepSets, rows(lambda x: x.mean((1, 2))[:, None], BATCH, 20, 3), "l1"),
    "graph": Net(Graph, rows(lambda x: labels(CLASSES, BATCH, 8), BATCH, 8, 6)),
    "experts": Net(Experts, rows(lambda x: labels(CLASSES, BATCH), BATCH, 12)),
}
