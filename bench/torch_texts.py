"""Networks of texts, as people write them in PyTorch, for `bench.torch_nets`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TOKENS, WORDS, WIDTH, CLASSES = 10, 30, 16, 5


class SelfAttention(nn.Module):
    """Written out, with a mask that is added before the softmax, or one that a branch of `where` fills."""

    def __init__(self, mask: Tensor | None = None, bias: Tensor | None = None) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", mask)
        self.register_buffer("tril", bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(x.shape[0], x.shape[1], 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(8)
        if self.mask is not None:
            scores = scores + self.mask
        if self.tril is not None:
            scores = scores.masked_fill(self.tril == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), attention, nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """Learned positions, a causal mask, an output layer tied to the embedding, biases of zeros as GPT-2's."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        mask = torch.triu(torch.full((TOKENS, TOKENS), float("-inf")), 1)
        tril = torch.tril(torch.ones(TOKENS, TOKENS))
        self.blocks = nn.Sequential(Block(SelfAttention(mask)), Block(SelfAttention(None, tril)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.apply(self.start)
        if tied:
            self.head.weight = self.words.weight

    def start(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, 0, 0.1)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Bert(nn.Module):
    """Positions of sines and cosines, a padding mask that is an input, a pooler."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.types = nn.Embedding(WORDS, WIDTH), nn.Embedding(2, WIDTH)
        at = torch.arange(TOKENS)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(1e4) / WIDTH))
        self.register_buffer("places", torch.stack([at.sin(), at.cos()], -1).flatten(1)[None])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True) for _ in range(2))
        self.pooler, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.words(ids) + self.types(torch.zeros_like(ids)) + self.places[:, : ids.shape[1]])
        for layer in self.layers:
            x = layer(x, src_mask=(1.0 - mask[:, None, :].expand(-1, TOKENS, -1).repeat_interleave(2, 0)) * -1e4)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


class RmsNorm(nn.Module):
    """T5's, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class T5Attention(nn.Module):
    """Without biases; the first has a table of relative positions."""

    def __init__(self, is_causal: bool = False, is_placed: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.bias = nn.Embedding(8, 2) if is_placed else None
        self.is_causal = is_causal

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        products = self.q(x), self.k(other), self.v(other)
        q, k, v = (y.unflatten(-1, (2, 8)).transpose(1, 2) for y in products)
        scores = q @ k.transpose(2, 3)
        at = torch.arange(x.shape[1])
        if self.bias is not None:
            near = (at[None, :] - at[:, None]).clamp(-4, 3) + 4
            scores = scores + self.bias(near).permute(2, 0, 1)[None]
        if self.is_causal:
            scores = scores + torch.where(at[None, :] > at[:, None], torch.finfo(torch.float32).min, 0.0)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class T5(nn.Module):
    """An encoder and a decoder that share their embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Embedding(WORDS, WIDTH)
        self.norms = nn.ModuleList(RmsNorm() for _ in range(6))
        self.encoder, self.decoder, self.cross = T5Attention(False, True), T5Attention(True, True), T5Attention()
        self.gate, self.up = (nn.ModuleList(nn.Linear(WIDTH, 32, bias=False) for _ in range(2)) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(32, WIDTH, bias=False) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def mlp(self, n: int, x: Tensor) -> Tensor:
        return self.down[n](F.gelu(self.gate[n](x), approximate="tanh") * self.up[n](x))

    def forward(self, ids: Tensor, said: Tensor) -> Tensor:
        x, y = self.shared(ids), self.shared(said)
        h = self.norms[0](x)
        x = x + self.encoder(h, h)
        x = x + self.mlp(0, self.norms[1](x))
        h = self.norms[2](y)
        y = y + self.decoder(h, h)
        y = y + self.cross(self.norms[3](y), x)
        y = y + self.mlp(1, self.norms[4](y))
        return self.head(self.norms[5](y) * WIDTH**-0.5)


class Llama(nn.Module):
    """Rotary positions, whose cosines and sines are buffers, RMSNorm, a gate, and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 32, False), nn.Linear(WIDTH, 32, False)
        self.down = nn.Linear(32, WIDTH, bias=False)
        self.norm1, self.norm2, self.norm3 = RmsNorm(), RmsNorm(), RmsNorm()
        angles = torch.outer(torch.arange(TOKENS), 1e4 ** (-torch.arange(0, 8, 2) / 8)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def turned(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return self.head(self.norm3(x + self.down(F.silu(self.gate(h)) * self.up(h))))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.lstm, self.head = nn.LSTM(WIDTH, 12, 2, batch_first=True, bidirectional=True), nn.Linear(24, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(ids))[0]).transpose(1, 2)


class TextClassifier(nn.Module):
    """Reads the last hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.gru = nn.Embedding(WORDS, WIDTH), nn.GRU(WIDTH, 12, batch_first=True)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.gru(self.words(ids))[1][-1])
