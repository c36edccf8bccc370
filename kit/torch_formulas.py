"""Formulas of optimisers and schedules as torch and transformers document them, in NumPy and double precision.

Tests compare training sessions with them. Where torch and transformers are installed, `python -m kit.torch_formulas`
compares the formulas with these."""

from __future__ import annotations

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
    ("adamw", {"rate": 0.05, "amsgrad": True}, lambda w, g: adam(w, g, 0.05, 0.01, True, True),
     "AdamW", {"lr": 0.05, "amsgrad": True}),
]  # fmt: skip


def gradients() -> list[np.ndarray]:
    """Of a matrix of 5 by 3: large ones first, so that AMSGrad differs from Adam."""
    return [g * 0.7**n for n, g in enumerate(np.random.default_rng(3).normal(size=(8, 5, 3)))]


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
    print("the formulas are those of torch", torch.__version__, "and transformers", transformers.__version__)


if __name__ == "__main__":
    main()
