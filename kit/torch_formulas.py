"""Formulas of optimisers, schedules and losses as torch and transformers document them, in NumPy and double precision.

Tests compare training sessions with them. Where torch and transformers are installed, `python -m kit.torch_formulas`
compares the formulas with these."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Steps = Iterator[np.ndarray]
Gradients = Sequence[np.ndarray]


def rmsprop(
    w: np.ndarray, gradients: Gradients, rate: float, alpha: float = 0.99, eps: float = 1e-8, decay: float = 0.0,
    momentum: float = 0.0, centered: bool = False,
) -> Steps:  # fmt: skip
    v = m = u = np.zeros_like(w)
    for g in gradients:
        g = g + decay * w
        v = alpha * v + (1 - alpha) * g * g
        m = alpha * m + (1 - alpha) * g
        u = momentum * u + g / (np.sqrt(v - m * m if centered else v) + eps)
        w = w - rate * u
        yield w


def adam(
    w: np.ndarray, gradients: Gradients, rate: float, decay: float = 0.0, decoupled: bool = False, amsgrad: bool = False
) -> Steps:  # fmt: skip
    m = v = most = np.zeros_like(w)
    for n, g in enumerate(gradients, 1):
        g = g if decoupled else g + decay * w
        w = w * (1 - rate * decay) if decoupled else w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        most = np.maximum(most, v)
        root = np.sqrt((most if amsgrad else v) / (1 - 0.999**n))
        w = w - rate * m / (1 - 0.9**n) / (root + 1e-8)
        yield w


def adafactor(w: np.ndarray, gradients: Gradients, rate: float, decay: float = 0.0, d: float = 1.0) -> Steps:
    rows = columns = v = 0.0
    for n, g in enumerate(gradients, 1):
        share, size = n**-0.8, np.sqrt((w * w).mean())
        rows = rows + share * ((g * g).mean(-1, keepdims=True) - rows)
        columns = columns + share * ((g * g).mean(-2, keepdims=True) - columns) if g.ndim > 1 else 0.0
        v = v + share * (g * g - v)
        u = g / np.sqrt(rows * columns / rows.mean(-2, keepdims=True) if g.ndim > 1 else v)
        step = max(1e-3, size) * min(rate, n**-0.5) / max(1.0, np.sqrt((u * u).mean()) / d)
        w = w * (1 - rate * decay) - step * u
        yield w


# name and settings of an optimiser, the formula, and torch's name and settings
OPTIMIZERS: list[tuple[str, dict[str, Any], Callable[..., Steps], str, dict[str, Any]]] = [
    ("rmsprop", {"rate": 0.02}, lambda w, g: rmsprop(w, g, 0.02), "RMSprop", {"lr": 0.02}),
    ("rmsprop", {"rate": 0.02, "centered": True, "alpha": 0.9}, lambda w, g: rmsprop(w, g, 0.02, 0.9, centered=True),
     "RMSprop", {"lr": 0.02, "centered": True, "alpha": 0.9}),
    ("rmsprop", {"rate": 0.01, "momentum": 0.9, "decay": 0.1, "epsilon": 1e-3},
     lambda w, g: rmsprop(w, g, 0.01, 0.99, 1e-3, 0.1, 0.9),
     "RMSprop", {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1, "eps": 1e-3}),
    ("rmsprop", {"rate": 0.01, "momentum": 0.5, "centered": True}, lambda w, g: rmsprop(w, g, 0.01, momentum=0.5,
     centered=True), "RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
    ("adam", {"rate": 0.05, "amsgrad": True, "decay": 0.1}, lambda w, g: adam(w, g, 0.05, 0.1, amsgrad=True),
     "Adam", {"lr": 0.05, "amsgrad": True, "weight_decay": 0.1}),
    ("amsgrad", {"rate": 0.05}, lambda w, g: adam(w, g, 0.05, amsgrad=True), "Adam", {"lr": 0.05, "amsgrad": True}),
    ("adafactor", {"rate": 0.3, "decay": 0.1}, lambda w, g: adafactor(w, g, 0.3, 0.1),
     "Adafactor", {"lr": 0.3, "weight_decay": 0.1}),
    ("adafactor", {"rate": 0.05, "clip": 1.2}, lambda w, g: adafactor(w, g, 0.05, d=1.2),
     "Adafactor", {"lr": 0.05, "d": 1.2}),
    ("adamw", {"rate": 0.05, "amsgrad": True}, lambda w, g: adam(w, g, 0.05, 0.01, True, True),
     "AdamW", {"lr": 0.05, "amsgrad": True}),
]  # fmt: skip


def gradients() -> list[np.ndarray]:
    """Of a matrix of 5 by 3: large ones first, so that AMSGrad differs from Adam."""
    return [g * 0.9**n for n, g in enumerate(np.random.default_rng(3).normal(size=(24, 5, 3)))]


# ── schedules: how many times the rate of the optimiser each step has ────────────────────────────────────────────────


def one_cycle(step: int, steps: int, start: float = 0.3, linear: bool = False) -> float:
    """torch's OneCycleLR with div_factor=25, final_div_factor=1e4"""
    phases = [(0.0, start * steps - 1, 1 / 25, 1.0), (start * steps - 1, steps - 1, 1.0, 1 / 25e4)]
    first, last, low, high = phases[0] if step <= phases[0][1] else phases[1]
    share = (step - first) / (last - first)
    return low + (high - low) * (share if linear else (1 - math.cos(math.pi * share)) / 2)


def warm(after: Callable[[int, float], float], warmup: int, steps: int = 0) -> Callable[[int], float]:
    """transformers: step / warm-up, then after(steps since, share of the rest)"""
    return lambda n: n / warmup if n < warmup else after(n - warmup, (n - warmup) / max(1, steps - warmup))


HF = {"num_warmup_steps": 4, "num_training_steps": 20}
# schedule, its settings, the formula, the class or function and its arguments
SCHEDULES: list[tuple[str, dict[str, Any], Callable[[int], float], str, dict[str, Any]]] = [
    ("one_cycle", {"steps": 20}, lambda n: one_cycle(n, 20), "OneCycleLR", {"total_steps": 20}),
    ("one_cycle", {"steps": 13, "start": 0.5, "linear": True}, lambda n: one_cycle(n, 13, 0.5, True), "OneCycleLR",
     {"total_steps": 13, "pct_start": 0.5, "anneal_strategy": "linear"}),
    ("polynomial", {"steps": 9, "power": 2.5}, lambda n: (1 - min(n / 9, 1)) ** 2.5, "PolynomialLR",
     {"total_iters": 9, "power": 2.5}),
    ("cosine", {"steps": 9}, lambda n: (1 + math.cos(math.pi * n / 9)) / 2, "CosineAnnealingLR", {"T_max": 9}),
    ("exponential", {"every": 3, "factor": 0.5}, lambda n: 0.5 ** (n // 3), "StepLR", {"step_size": 3, "gamma": 0.5}),
    ("get_constant_schedule_with_warmup", {"num_warmup_steps": 4}, warm(lambda *_: 1.0, 4),
     "get_constant_schedule_with_warmup", {"num_warmup_steps": 4}),
    ("get_linear_schedule_with_warmup", HF, warm(lambda _, s: max(0.0, 1 - s), 4, 20),
     "get_linear_schedule_with_warmup", HF),
    ("get_cosine_schedule_with_warmup", {**HF, "num_cycles": 1.5},
     warm(lambda _, s: (1 + math.cos(3 * math.pi * s)) / 2, 4, 20),
     "get_cosine_schedule_with_warmup", {**HF, "num_cycles": 1.5}),
    ("get_cosine_with_hard_restarts_schedule_with_warmup", {**HF, "num_cycles": 3},
     warm(lambda _, s: 0.0 if s >= 1 else (1 + math.cos(math.pi * (3 * s % 1))) / 2, 4, 20),
     "get_cosine_with_hard_restarts_schedule_with_warmup", {**HF, "num_cycles": 3}),
    ("get_polynomial_decay_schedule_with_warmup", {**HF, "lr_end": 0.02, "power": 2.0},
     warm(lambda _, s: 0.2 + 0.8 * (1 - min(s, 1)) ** 2, 4, 20),
     "get_polynomial_decay_schedule_with_warmup", {**HF, "lr_end": 0.02, "power": 2.0}),
    ("get_inverse_sqrt_schedule", {"num_warmup_steps": 4}, warm(lambda n, _: 1 / math.sqrt((n + 4) / 4), 4),
     "get_inverse_sqrt_schedule", {"num_warmup_steps": 4}),
]  # fmt: skip
RATE, COUNT = 0.1, 20  # of the optimiser; rates that are compared
OBSERVED = [3, 2, 2.5, 1.99999, 2.1, 1.5, 1.6, 1.7, 1.8, 1.9, 1.4, 1.41, 1.42, 1.43, 1.44]  # by a plateau
PLATEAU = {"factor": 0.5, "patience": 1, "cooldown": 1, "end": 0.02}
PLATEAU_RATES = [0.1] * 3 + [0.05] * 4 + [0.025] * 5 + [0.02] * 3  # after each


# ── losses ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def log_softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.asarray(x - np.log(np.exp(x).sum(axis, keepdims=True)))


def soft_cross_entropy(x: np.ndarray, y: np.ndarray, w: Any = 1.0, smoothing: float = 0.0) -> float:
    y = (1 - smoothing) * y + smoothing / x.shape[1]
    return float(-(np.asarray(w).reshape(-1, *[1] * (x.ndim - 2)) * y * log_softmax(x, 1)).sum(1).mean())


def bce(x: np.ndarray, y: np.ndarray, p: Any) -> float:
    return float(-(p * y * np.log(x) + (1 - y) * np.log(1 - x)).mean())


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def nll(x: np.ndarray, y: np.ndarray, w: Any, ignored: int = -100) -> float:
    found = [(w[c], x[n, c]) for n, c in enumerate(y) if c != ignored]
    return float(-sum(a * b for a, b in found) / sum(a for a, _ in found))


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray((a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1)))


def cosine_embedding(a: np.ndarray, b: np.ndarray, y: np.ndarray, margin: float) -> float:
    return float(np.select([y == 1, y == -1], [1 - cosine(a, b), np.maximum(cosine(a, b) - margin, 0)]).mean())


def triplet(a: np.ndarray, p: np.ndarray, n: np.ndarray, margin: float = 1.0, swap: bool = False) -> float:
    near, far, other = (np.sqrt(((x - y + 1e-6) ** 2).sum(-1)) for x, y in ((a, p), (a, n), (p, n)))
    return float(np.maximum(near - (np.minimum(far, other) if swap else far) + margin, 0).mean())


def ctc(
    x: np.ndarray, y: np.ndarray, steps: np.ndarray, counts: np.ndarray, blank: int = 0, mean: bool = True
) -> float:
    """The sum of the probabilities of all paths, each of which is tried. x: (T, N, C)"""
    losses = []
    for n in range(x.shape[1]):
        logs, total = log_softmax(x[: steps[n], n]), 0.0
        for path in itertools.product(range(x.shape[2]), repeat=int(steps[n])):
            merged = [c for m, c in enumerate(path) if (m == 0 or path[m - 1] != c) and c != blank]
            if merged == y[n, : counts[n]].tolist():
                total += math.exp(sum(logs[m, c] for m, c in enumerate(path)))
        losses.append(-math.log(total) / (max(1, counts[n]) if mean else 1))
    return float(np.mean(losses) if mean else np.sum(losses))


def _normal(seed: int, *shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


def _shares(seed: int, *shape: int) -> np.ndarray:
    return np.asarray(np.exp(log_softmax(_normal(seed, *shape), 1)))


W3, SIDES, CLASSES = [0.2, 1.0, 2.5], np.array([1.0, -1.0, 1.0, -1.0, 0.0, 2.0]), np.array([2, 0, 1, 2])
TEXTS = np.array([[1, 1, 2], [2, 1, 0], [3, 0, 0]]), np.array([6, 5, 3]), np.array([3, 2, 0])
# the loss's settings without its outputs; the outputs; its feeds; the formula; torch's function of outputs and feeds
LOSSES: list[tuple[str, dict[str, Any], list[np.ndarray], list[np.ndarray], Any, Any]] = [
    ("cross_entropy", {"soft": True}, [_normal(1, 4, 3)], [_shares(2, 4, 3)], soft_cross_entropy,
     lambda f, x, y: f.cross_entropy(x, y)),
    ("cross_entropy", {"soft": True, "weights": W3, "smoothing": 0.1}, [_normal(1, 4, 3)], [_shares(2, 4, 3)],
     lambda x, y: soft_cross_entropy(x, y, W3, 0.1),
     lambda f, x, y: f.cross_entropy(x, y, x.new_tensor(W3), label_smoothing=0.1)),
    ("cross_entropy", {"soft": True, "axis": 1}, [_normal(1, 2, 3, 5)], [_shares(2, 2, 3, 5)], soft_cross_entropy,
     lambda f, x, y: f.cross_entropy(x, y)),
    ("cross_entropy", {"reduction": "sum", "weights": W3}, [_normal(1, 4, 3)], [CLASSES],
     lambda x, y: nll(log_softmax(x), y, W3) * sum(W3[c] for c in y),
     lambda f, x, y: f.cross_entropy(x, y, x.new_tensor(W3), reduction="sum")),
    ("nll", {"weights": W3, "ignore_index": 1}, [log_softmax(_normal(1, 4, 3))], [CLASSES],
     lambda x, y: nll(x, y, W3, 1), lambda f, x, y: f.nll_loss(x, y, x.new_tensor(W3), ignore_index=1)),
    ("mse", {"reduction": "sum"}, [_normal(1, 4, 3)], [_normal(2, 4, 3)], lambda x, y: float(((x - y) ** 2).sum()),
     lambda f, x, y: f.mse_loss(x, y, reduction="sum")),
    ("bce", {"pos_weight": 3.0}, [_normal(1, 4, 3)], [sigmoid(_normal(2, 4, 3))], lambda x, y: bce(sigmoid(x), y, 3.0),
     lambda f, x, y: f.binary_cross_entropy_with_logits(x, y, pos_weight=x.new_tensor(3.0))),
    ("bce", {"pos_weight": W3}, [_normal(1, 4, 3)], [sigmoid(_normal(2, 4, 3))], lambda x, y: bce(sigmoid(x), y, W3),
     lambda f, x, y: f.binary_cross_entropy_with_logits(x, y, pos_weight=x.new_tensor(W3))),
    ("bce", {"pos_weight": W3, "logits": False}, [sigmoid(_normal(1, 4, 3))], [sigmoid(_normal(2, 4, 3))],
     lambda x, y: bce(x, y, W3), None),
    ("kl", {}, [log_softmax(_normal(1, 4, 3))], [_shares(2, 4, 3)],
     lambda x, y: float((y * (np.log(y) - x)).sum() / len(x)), lambda f, x, y: f.kl_div(x, y, reduction="batchmean")),
    ("kl", {"reduction": "mean", "log_target": True}, [log_softmax(_normal(1, 4, 3))], [np.log(_shares(2, 4, 3))],
     lambda x, y: float((np.exp(y) * (y - x)).mean()), lambda f, x, y: f.kl_div(x, y, log_target=True)),
    ("cosine", {}, [_normal(1, 4, 3)], [_normal(2, 4, 3)], lambda x, y: float((1 - cosine(x, y)).mean()),
     lambda f, x, y: (1 - f.cosine_similarity(x, y)).mean()),
    ("cosine", {"margin": 0.1}, [_normal(1, 6, 3), _normal(2, 6, 3)], [SIDES],
     lambda a, b, y: cosine_embedding(a, b, y, 0.1), lambda f, a, b, y: f.cosine_embedding_loss(a, b, y, margin=0.1)),
    ("triplet", {}, [_normal(n, 4, 3) for n in (1, 2, 3)], [], triplet, lambda f, *x: f.triplet_margin_loss(*x)),
    ("triplet", {"margin": 0.5, "swap": True}, [_normal(n, 4, 3) for n in (1, 2, 3)], [],
     lambda *x: triplet(*x, 0.5, True), lambda f, *x: f.triplet_margin_loss(*x, margin=0.5, swap=True)),
    ("ctc", {}, [_normal(1, 6, 3, 4)], [*TEXTS], ctc,
     lambda f, x, *y: f.ctc_loss(f.log_softmax(x, -1), *y)),
    ("ctc", {"blank": 3, "reduction": "sum"}, [_normal(1, 6, 3, 4)], [TEXTS[0] % 3, *TEXTS[1:]],
     lambda x, *y: ctc(x, *y, 3, False),
     lambda f, x, *y: f.ctc_loss(f.log_softmax(x, -1), *y, blank=3, reduction="sum")),
    ("ctc", {"batch_first": True}, [_normal(1, 3, 6, 4)], [*TEXTS], lambda x, *y: ctc(x.transpose(1, 0, 2), *y),
     lambda f, x, *y: f.ctc_loss(f.log_softmax(x.transpose(0, 1), -1), *y)),
]  # fmt: skip


def slopes(formula: Callable[..., float], outputs: list[np.ndarray], feeds: list[np.ndarray]) -> list[np.ndarray]:
    """The gradient of a formula by central differences."""
    found = [np.zeros_like(x) for x in outputs]
    for n, x in enumerate(outputs):
        for place in np.ndindex(x.shape):
            losses = []
            for step in (1e-5, -1e-5):
                moved = x.copy()
                moved[place] += step
                losses.append(formula(*outputs[:n], moved, *outputs[n + 1 :], *feeds))
            found[n][place] = (losses[0] - losses[1]) / 2e-5
    return found


def main() -> None:
    import torch
    import transformers

    start = np.random.default_rng(0).normal(size=(5, 3))
    for _, _, formula, name, settings in OPTIMIZERS:
        w = torch.tensor(start.tolist(), dtype=torch.float64, requires_grad=True)
        optimizer = getattr(torch.optim, name)([w], **settings)
        for g, expected in zip(gradients(), formula(start, gradients()), strict=True):
            w.grad = torch.tensor(g.tolist(), dtype=torch.float64)
            optimizer.step()
            np.testing.assert_allclose(w.detach().tolist(), expected, rtol=1e-12)
    for _, _, formula, name, settings in SCHEDULES:
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=RATE)
        if hasattr(transformers, name):
            schedule = getattr(transformers, name)(optimizer, **settings)
        else:
            more = {"max_lr": RATE, "cycle_momentum": False} if name == "OneCycleLR" else {}
            schedule = getattr(torch.optim.lr_scheduler, name)(optimizer, **settings, **more)
        for n in range(settings.get("T_max", settings.get("total_steps", COUNT))):
            np.testing.assert_allclose(optimizer.param_groups[0]["lr"], RATE * formula(n), rtol=1e-9, atol=1e-12)
            optimizer.step()
            if n + 1 < settings.get("total_steps", COUNT):
                schedule.step()
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=RATE)
    names = {"factor": "factor", "patience": "patience", "cooldown": "cooldown", "end": "min_lr"}
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **{names[k]: v for k, v in PLATEAU.items()})
    found = []
    for value in OBSERVED:
        plateau.step(value)
        found.append(optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(found, PLATEAU_RATES)
    for _, _, outputs, feeds, formula, function in LOSSES:
        if function is not None:
            tensors = [torch.tensor(x.tolist(), dtype=torch.float64 if x.dtype.kind == "f" else None)
                       for x in (*outputs, *feeds)]  # fmt: skip
            found = function(torch.nn.functional, *tensors).item()
            np.testing.assert_allclose(formula(*outputs, *feeds), found, rtol=1e-6)
    print("the formulas are those of torch", torch.__version__, "and transformers", transformers.__version__)


if __name__ == "__main__":
    main()
