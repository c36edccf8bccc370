"""Losses and optimisers as functions, in Python and in JavaScript, with formulas in NumPy that tests compare them with.

`python -m kit.traced_cases` compares the formulas with torch's autograd, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kit import torch_formulas as formulas
from kit.torch_formulas import CLASSES, W3, log_softmax, sigmoid
from pyruntime.training.graph.traced_functions import adafactor


class LossCase(NamedTuple):
    """outputs: y0, y1, …; feeds: labels by name; torch: of torch.nn.functional, outputs and labels"""

    name: str
    function: Callable[..., Any]
    javascript: str
    outputs: list[np.ndarray]
    feeds: dict[str, np.ndarray]
    formula: Callable[..., float]
    torch: Callable[..., Any]


def _normal(seed: int, *shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).normal(size=shape))


def focal(o: Any, labels: Any) -> Any:
    p = o.y0.softmax(-1).pick(labels.target)
    return (-p.log() * (1 - p) ** 2).mean()


def focal_formula(logs: np.ndarray) -> float:
    return float((-logs * (1 - np.exp(logs)) ** 2).mean())


def tversky(x: np.ndarray, y: np.ndarray) -> float:
    p = sigmoid(x)
    hits = (p * y).sum((1, 2))
    return float(
        (1 - (hits + 1) / (hits + 0.3 * (p * (1 - y)).sum((1, 2)) + 0.7 * ((1 - p) * y).sum((1, 2)) + 1)).sum()
    )


def infonce(x: np.ndarray, z: np.ndarray) -> float:
    x, z = (a / np.sqrt((a * a).sum(-1, keepdims=True)) for a in (x, z))
    return float(-np.diag(log_softmax(x @ z.T / 0.5)).mean())


def _infonce(o: Any, labels: Any) -> Any:
    x, z = (a / a.square().sum(-1, True).sqrt() for a in (o.y0, o.y1))
    return -(x.matmul(z.transpose()) / 0.5).log_softmax().pick(labels.pair).mean()


LOSSES = [
    LossCase("mse", lambda o, t: ((o.y0 - t.target) ** 2).mean(), "(o, t) => o.y0.sub(t.target).pow(2).mean()",
             [_normal(1, 4, 3)], {"target": _normal(2, 4, 3)}, lambda x, y: float(((x - y) ** 2).mean()),
             lambda f, x, y: f.mse_loss(x, y)),
    LossCase("of rows", lambda o, t: (o.y0 - t.target).abs().mean(), "(o, t) => o.y0.sub(t.target).abs().mean()",
             [_normal(1, 7)], {"target": _normal(2, 7)}, lambda x, y: float(abs(x - y).mean()),
             lambda f, x, y: f.l1_loss(x, y)),
    LossCase("cross entropy", lambda o, t: -o.y0.log_softmax(-1).pick(t.target).mean(),
             "(o, t) => o.y0.logSoftmax(-1).pick(t.target).mean().neg()", [_normal(1, 4, 3)], {"target": CLASSES},
             lambda x, c: formulas.nll(log_softmax(x), c, [1, 1, 1]), lambda f, x, c: f.cross_entropy(x, c)),
    LossCase("weighted classes", lambda o, t: -(o.y0.log_softmax(-1) * t.target.one_hot(3) * W3).sum(-1).sum(),
             f"(o, t) => o.y0.logSoftmax(-1).mul(t.target.oneHot(3)).mul({W3}).sum(-1).sum().neg()",
             [_normal(1, 4, 3)], {"target": CLASSES},
             lambda x, c: formulas.nll(log_softmax(x), c, W3) * sum(W3[n] for n in c),
             lambda f, x, c: f.cross_entropy(x, c, x.new_tensor(W3), reduction="sum")),
    LossCase("focal", focal, """(o, t) => {
               const p = o.y0.softmax(-1).pick(t.target);
               return p.log().neg().mul(p.neg().add(1).pow(2)).mean();
             }""", [_normal(1, 4, 3)], {"target": CLASSES},
             lambda x, c: focal_formula(log_softmax(x)[range(4), c]),
             lambda f, x, c: (f.cross_entropy(x, c, reduction="none")
                              * (1 - (-f.cross_entropy(x, c, reduction="none")).exp()) ** 2).mean()),
    LossCase("tversky", lambda o, t: (1 - ((o.y0.sigmoid() * t.mask).sum([1, 2]) + 1) / (
                 (o.y0.sigmoid() * t.mask).sum([1, 2]) + 0.3 * (o.y0.sigmoid() * (1 - t.mask)).sum([1, 2])
                 + 0.7 * ((1 - o.y0.sigmoid()) * t.mask).sum([1, 2]) + 1)).sum(),
             """(o, t) => {
               const [p, y] = [o.y0.sigmoid(), t.mask];
               const hits = p.mul(y).sum([1, 2]);
               const wrong = p.mul(y.neg().add(1)).sum([1, 2]).mul(0.3);
               const missed = p.neg().add(1).mul(y).sum([1, 2]).mul(0.7);
               return hits.add(1).div(hits.add(wrong).add(missed).add(1)).neg().add(1).sum();
             }""", [_normal(1, 2, 3, 4)], {"mask": (_normal(2, 2, 3, 4) > 0).astype(float)}, tversky,
             lambda f, x, y: (1 - ((x.sigmoid() * y).sum((1, 2)) + 1) / (
                 (x.sigmoid() * y).sum((1, 2)) + 0.3 * (x.sigmoid() * (1 - y)).sum((1, 2))
                 + 0.7 * ((1 - x.sigmoid()) * y).sum((1, 2)) + 1)).sum()),
    LossCase("pairs", _infonce, """(o, t) => {
               const [x, z] = [o.y0, o.y1].map((a) => a.div(a.square().sum(-1, true).sqrt()));
               return x.matmul(z.transpose()).div(0.5).logSoftmax().pick(t.pair).mean().neg();
             }""", [_normal(1, 4, 3), _normal(2, 4, 3)], {"pair": np.arange(4)}, lambda x, z, _: infonce(x, z),
             lambda f, x, z, c: f.cross_entropy(f.normalize(x) @ f.normalize(z).T / 0.5, c)),
    LossCase("chosen", lambda o, t: (o.y0 > t.target).where(2 * (o.y0 - t.target), t.target - o.y0).maximum(0.1).mean(),
             "(o, t) => o.y0.gt(t.target).where(o.y0.sub(t.target).mul(2), t.target.sub(o.y0)).maximum(0.1).mean()",
             [_normal(1, 4, 3)], {"target": _normal(2, 4, 3)},
             lambda x, y: float(np.maximum(np.where(x > y, 2 * (x - y), y - x), 0.1).mean()),
             lambda f, x, y: ((x > y) * 2 * (x - y) + (x <= y) * (y - x)).clamp(min=0.1).mean()),
    LossCase("of rows with weights",
             lambda o, t: ((o.y0 - t.target).square().mean(-1) * t.weight).sum() / t.weight.sum(),
             """(o, t) => o.y0.sub(t.target).square().mean(-1).mul(t.weight).sum().div(t.weight.sum())""",
             [_normal(1, 4, 3)], {"target": _normal(2, 4, 3), "weight": abs(_normal(3, 4))},
             lambda x, y, w: float((((x - y) ** 2).mean(-1) * w).sum() / w.sum()),
             lambda f, x, y, w: (((x - y) ** 2).mean(-1) * w).sum() / w.sum()),
    LossCase("gaussian", lambda o, t: (o.y1 + (o.y0 - t.target).square() / o.y1.exp()).mean() / 2,
             "(o, t) => o.y1.add(o.y0.sub(t.target).square().div(o.y1.exp())).mean().div(2)",
             [_normal(1, 4, 3), _normal(2, 4, 3)], {"target": _normal(3, 4, 3)},
             lambda x, v, y: float((v + (x - y) ** 2 / np.exp(v)).mean() / 2),
             lambda f, x, v, y: f.gaussian_nll_loss(x, y, v.exp(), eps=0)),
]  # fmt: skip


class UpdateCase(NamedTuple):
    """An optimiser as a function. formula: in NumPy, from the first weight and the gradient of each step to the weight
    after each step; torch: name and settings of the same optimiser in torch.optim, if it has one"""

    name: str
    function: Callable[..., Any]
    javascript: str
    settings: dict[str, float]
    formula: Callable[..., formulas.Steps]


def adam(w: Any, g: Any, state: Any, step: Any) -> Any:
    state.m = 0.9 * state.m + 0.1 * g
    state.v = 0.999 * state.v + 0.001 * g**2
    found = state.m / step.correction(0.9) / ((state.v / step.correction(0.999)).sqrt() + 1e-8)
    return w - step.rate * found


def lars(w: Any, g: Any, state: Any, step: Any) -> Any:
    g = g + step.decay * w
    share = w.square().sum().sqrt() / (g.square().sum().sqrt() + 1e-9) * step.trust
    state["m"] = state["m"] * 0.9 + g * share
    state["count"] = state["count"] + 1
    return w - state.m * step.rate / state["count"].sqrt()


def rows(w: Any, g: Any, state: Any, step: Any) -> Any:
    state.m = state.m * 0.5 + g * state.size
    state.size = state.size * 0.5 + abs(w).sum(-1, True)
    return w - step.rate * state.m / (state.size + 1) * w.abs().max()


def lars_formula(w: np.ndarray, gradients: formulas.Gradients) -> formulas.Steps:
    m = np.zeros_like(w)
    for n, g in enumerate(gradients, 1):
        g = g + 0.01 * w
        m = 0.9 * m + g * np.sqrt((w * w).sum()) / (np.sqrt((g * g).sum()) + 1e-9) * 0.5
        w = w - m * 0.1 / np.sqrt(n)
        yield w


def rows_formula(w: np.ndarray, gradients: formulas.Gradients) -> formulas.Steps:
    size, m = np.zeros_like(w[..., :1]), np.zeros_like(w)
    for g in gradients:
        m = m * 0.5 + g * size
        size = 0.5 * size + np.abs(w).sum(-1, keepdims=True)
        w = w - 0.01 * m / (size + 1) * np.abs(w).max()
        yield w


def signs(w: np.ndarray, gradients: formulas.Gradients) -> formulas.Steps:
    for n, g in enumerate(gradients, 1):
        w = w - 0.02 / n * np.sign(g)
        yield w


UPDATES = [
    UpdateCase("adam", adam, """(w, g, state, step) => {
        state.m = state.m.mul(0.9).add(g.mul(0.1));
        state.v = state.v.mul(0.999).add(g.pow(2).mul(0.001));
        const root = state.v.div(step.correction(0.999)).sqrt().add(1e-8);
        return w.sub(step.rate.mul(state.m).div(step.correction(0.9)).div(root));
      }""", {"rate": 0.05}, lambda w, g: formulas.adam(w, g, 0.05)),
    UpdateCase("sums and a count", lars, """(w, g, state, step) => {
        g = g.add(w.mul(step.decay));
        const share = w.square().sum().sqrt().div(g.square().sum().sqrt().add(1e-9)).mul(step.trust);
        state.m = state.m.mul(0.9).add(g.mul(share));
        state.count = state.count.add(1);
        return w.sub(state.m.mul(step.rate).div(state.count.sqrt()));
      }""", {"rate": 0.1, "decay": 0.01, "trust": 0.5}, lars_formula),
    UpdateCase("states that read the weight and each other", rows, """(w, g, state, step) => {
        state.m = state.m.mul(0.5).add(g.mul(state.size));
        state.size = state.size.mul(0.5).add(w.abs().sum(-1, true));
        return w.sub(step.rate.mul(state.m).div(state.size.add(1)).mul(w.abs().max()));
      }""", {"rate": 0.01}, rows_formula),
    UpdateCase("without a state", lambda w, g, state, step: w - step.rate / step.number * g.sign(),
               "(w, g, state, step) => w.sub(step.rate.div(step.number).mul(g.sign()))", {"rate": 0.02}, signs),
    UpdateCase("adafactor", adafactor, """(w, g, state, step) => {
        const [share, squares] = [step.number.pow(-0.8), g.square()];
        let v;
        if (w.rank > 1) {
          state.rows = state.rows.add(squares.mean(-1, true).sub(state.rows).mul(share));
          state.columns = state.columns.add(squares.mean(-2, true).sub(state.columns).mul(share));
          v = state.rows.mul(state.columns).div(state.rows.mean(-2, true).maximum(step.epsilon));
        } else {
          v = state.v = state.v.add(squares.sub(state.v).mul(share));
        }
        const u = g.div(v.maximum(step.epsilon.square()).sqrt());
        const rate = step.rate.minimum(step.number.pow(-0.5)).mul(w.square().mean().sqrt().maximum(step.smallest));
        return w.sub(u.mul(rate.div(u.square().mean().sqrt().div(step.clip).maximum(1))));
      }""", {"rate": 0.3, "exponent": 0.8, "epsilon": 2.0**-23, "smallest": 1e-3, "clip": 1.0, "decay": 0.0},
               lambda w, g: formulas.adafactor(w, g, 0.3)),
]  # fmt: skip


def main() -> None:
    import torch

    for case in LOSSES:
        given = [torch.tensor(x.tolist(), dtype=torch.float64 if x.dtype.kind == "f" else None)
                 for x in (*case.outputs, *case.feeds.values())]  # fmt: skip
        for x in given[: len(case.outputs)]:
            x.requires_grad = True
        loss = case.torch(torch.nn.functional, *given)
        feeds = [*case.feeds.values()]
        np.testing.assert_allclose(case.formula(*case.outputs, *feeds), loss.item(), rtol=1e-9)
        loss.backward()
        for x, expected in zip(given, formulas.slopes(case.formula, case.outputs, feeds), strict=False):
            np.testing.assert_allclose(x.grad.tolist(), expected, rtol=1e-6, atol=1e-8)
    print("losses and gradients are those of torch", torch.__version__)


if __name__ == "__main__":
    main()
