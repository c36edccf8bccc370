"""Training in float16, whose loss is scaled: one network and sequence of steps for native sessions and for pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from kit.training_networks import T, model, node, random
from pyruntime import TrainingSession

# Without a scale of the loss, what flows into "y" is 0 in float16.
TINY = 1e-8
RATE = 0.1 / TINY
OPTIONS: dict[str, Any] = {"loss": {"mse": "y", "scale": TINY}, "optimizer": {"sgd": {"rate": RATE}}}

# A session that begins with this scale just before it grows: two good steps double it, two of "far" overflow.
SCALE, GOOD_BATCHES = 2.0**23, 1998
STEPS = ["good"] * 2 + ["far"] * 2 + ["good"] * 8
SCALES = [SCALE, SCALE, 2 * SCALE, SCALE, *[SCALE / 2] * 8]
APPLIED = [name == "good" for name in STEPS]

WEIGHTS = {name: w.astype(np.float16) for name, w in random(0, w1=(6, 8), w2=(8, 3)).items()}


def network() -> bytes:
    """Two layers: "x" (N, 6) -> "y" (N, 3), all in float16."""
    nodes = [node("MatMul", "x w1", "a"), node("Tanh", "a", "b"), node("MatMul", "b w2", "y")]
    return model(nodes, {"x": (T.FLOAT16, ["N", 6])}, {"y": (T.FLOAT16, ["N", 3])}, WEIGHTS)


def feeds() -> dict[str, dict[str, np.ndarray]]:
    """Those of a good step, and of one whose gradients overflow with each scale from 2^22 on."""
    rng = np.random.default_rng(0)
    x, target = rng.normal(size=(4, 6)).astype(np.float16), rng.normal(size=(4, 3)).astype(np.float32)
    return {"good": {"x": x, "target": target}, "far": {"x": x, "target": np.full_like(target, 0.1 / TINY)}}


def checkpoint() -> bytes:
    """Of a session that begins so."""
    with TrainingSession(network(), **OPTIONS) as session:
        session._numbers.loss_scale, session._numbers.good_batches = SCALE, GOOD_BATCHES
        return session.state()


def in_double(steps: list[str]) -> tuple[list[float], float]:
    """The losses of these steps in double precision, of which those of "far" change nothing, and the norm of the first
    gradients."""
    w1, w2 = (w.astype(np.float64) for w in WEIGHTS.values())
    losses, norms = [], []
    for name in steps:
        x, target = (x.astype(np.float64) for x in feeds()[name].values())
        b = np.tanh(x @ w1)
        off = b @ w2 - target
        losses.append(TINY * float((off**2).mean()))
        into_y = TINY * 2 / off.size * off
        into_w1, into_w2 = x.T @ (into_y @ w2.T * (1 - b**2)), b.T @ into_y
        norms.append(float(np.sqrt((into_w1**2).sum() + (into_w2**2).sum())))
        if name == "good":
            w1, w2 = w1 - RATE * into_w1, w2 - RATE * into_w2
    return losses, norms[0]
