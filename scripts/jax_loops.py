"""Writes kit/loop_losses.json: losses by JAX, in float32, while it trains the networks of
`kit.loop_networks`, which are written here a second time.

JAX is not one of the project's packages, so this runs in an environment of its own (pip install "jax[cpu]" onnx):
python -m scripts.jax_loops"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from kit.loop_networks import LOSSES, RATE, ROWS, STATES, TEXTS, WIDTH, batches, weights

COUNT = 40


def mamba(w: Any, ids: Any) -> Any:
    import jax
    import jax.numpy as jnp

    e = w["embedding"][ids]
    x, z = jnp.split(e @ w["w_in"], 2, -1)
    x = jax.nn.silu(x)
    delta = jax.nn.softplus(x @ w["w_delta"] + w["b_delta"])
    b, c = jnp.split(x @ w["w_bc"], 2, -1)

    def step(h: Any, now: Any) -> Any:
        x, delta, b, c = now
        h = jnp.exp(delta[..., None] * -jnp.exp(w["a_log"])) * h + (delta * x)[..., None] * b[:, None]
        return h, jnp.einsum("bdn,bn->bd", h, c)

    _, y = jax.lax.scan(step, jnp.zeros((ROWS, WIDTH, STATES)), (x, delta, b, c))
    return (e + ((y + x * w["skip"]) * jax.nn.silu(z)) @ w["w_out"]) @ w["head"]


def rwkv(w: Any, ids: Any) -> Any:
    """Without the running maximum, in double: the sums themselves."""
    import jax
    import jax.numpy as jnp

    e = w["embedding"][ids]
    previous = jnp.concatenate([0 * e[:1], e[:-1]])
    x = e * (1 - w["mix"]) + previous * w["mix"]
    k, v, r = jnp.exp((x @ w["w_k"]).astype("float64")), x @ w["w_v"], jax.nn.sigmoid(x @ w["w_r"])
    now, kept = jnp.exp(w["u"].astype("float64")), jnp.exp(-jnp.exp(w["decay"].astype("float64")))

    def step(sums: Any, pair: Any) -> Any:
        (a, b), (k, v) = sums, pair
        return (a * kept + k * v, b * kept + k), (a + now * k * v) / (b + now * k)

    zeros = jnp.zeros((ROWS, WIDTH), "float64")
    _, y = jax.lax.scan(step, (zeros, zeros), (k, v))
    return (e + (r * y.astype("float32")) @ w["w_out"]) @ w["head"]


NETWORKS = {"mamba": mamba, "rwkv": rwkv}
assert NETWORKS.keys() == TEXTS.keys()


def losses(name: str) -> list[float]:
    """Of steps of Adam, with PyTorch's defaults besides the rate."""
    import jax

    def loss(w: Any, ids: Any, target: Any) -> Any:
        scores = jax.nn.log_softmax(NETWORKS[name](w, ids), -1)
        return -jax.numpy.take_along_axis(scores, target[..., None], -1).mean()

    derived, found = jax.jit(jax.value_and_grad(loss)), []
    w = {key: jax.numpy.asarray(x) for key, x in weights(name).items()}
    mean, square = ({key: 0 * x for key, x in w.items()} for _ in range(2))
    for n, feeds in enumerate(batches(COUNT), 1):
        value, gradients = derived(w, feeds["ids"], feeds["target"])
        found.append(round(float(value), 6))
        for key, g in gradients.items():
            mean[key] = 0.9 * mean[key] + 0.1 * g
            square[key] = 0.999 * square[key] + 0.001 * g * g
            root = np.sqrt(square[key] / (1 - 0.999**n)) + 1e-8
            w[key] = (w[key] - RATE * mean[key] / (1 - 0.9**n) / root).astype("float32")
    return found


def main() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    LOSSES.write_text(json.dumps({name: losses(name) for name in NETWORKS}) + "\n")


if __name__ == "__main__":
    main()
