"""How long a token of llama_mini takes behind few and many positions, beyond what attention must read and compute.

Its caches stay on the GPU. The lengths take turns in one page, or natively in one process, whose processor time counts
there: all adapters at hand compute on the CPU. What attention must do is reading the caches once, and its products, at
the speeds of bench/adapter_speed.py.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bench import adapter_speed
from bench.adapter_speed import Speed
from kit import zoo
from pyruntime import InferenceSession

LAYERS, HEADS, CACHES, SIZE = 4, 8, 2, 32  # of llama_mini: query heads, heads of keys, elements of a key
NAMES = [f"{n}.{part}" for n in range(LAYERS) for part in ("key", "value")]
WARM, TOKENS = 8, 24
TIMES = """async ({ lengths, warm, count }) => {
  const times = lengths.map(() => []);
  for (let n = 0; n < warm + count; n++) {
    for (const [place, behind] of lengths.entries()) {
      const start = performance.now();
      await bench.nextToken(behind);
      if (n >= warm) times[place].push(performance.now() - start);
    }
  }
  return times;
}"""


def in_page(page: Any, positions: Sequence[int]) -> str:
    """The report of a page of the bench in which a runtime has started."""
    model = f"/zoo/{zoo.materialize('llama_mini').name}"
    for behind in positions:
        page.evaluate("(what) => bench.openDecoder(what)", {"model": model, "past": 1, "behind": behind})
    times = page.evaluate(TIMES, {"lengths": [*positions], "warm": WARM, "count": TOKENS})
    milliseconds = {behind: statistics.median(found) for behind, found in zip(positions, times, strict=True)}
    return report("Chromium, ms", milliseconds, adapter_speed.in_page(page))


def natively(positions: Sequence[int]) -> str:
    session = InferenceSession(zoo.materialize("llama_mini"), providers=["webgpu"])
    decoders = {behind: _decoder(session, behind) for behind in positions}
    times: dict[int, list[float]] = {behind: [] for behind in positions}
    for n in range(WARM + TOKENS):
        for behind, token in decoders.items():
            begin = time.process_time()
            token()
            if n >= WARM:
                times[behind].append(1000 * (time.process_time() - begin))
    medians = {behind: statistics.median(found) for behind, found in times.items()}
    return report("natively, ms of processor time", medians, adapter_speed.natively())


def _decoder(session: InferenceSession, behind: int) -> Callable[[], None]:
    """Makes one token after another behind this number of positions."""
    rows = np.random.default_rng(0).standard_normal((1, CACHES, behind, SIZE), np.float32)
    past: dict[str, Any] = {f"past_key_values.{name}": rows for name in NAMES}
    places = {f"present.{name}": "gpu-buffer" for name in NAMES}
    next_ids, step = np.ones((1, 1), np.int64), behind

    def token() -> None:
        nonlocal past, next_ids, step
        given = {"input_ids": next_ids, "position_ids": np.full((1, 1), step), **past}
        given["attention_mask"] = np.ones((1, step + 1), np.int64)
        logits, *presents = session.run(["logits", *places], given, preferred_output_location=places)
        past = dict(zip([f"past_key_values.{name}" for name in NAMES], presents, strict=True))
        next_ids, step = logits[:, -1:].argmax(-1), step + 1

    return token


def report(what: str, milliseconds: Mapping[int, float], speed: Speed) -> str:
    """What tokens take, and what they take beyond the work of attention. milliseconds: by number of positions"""
    attention = {behind: 1000 * _attention(behind, speed) for behind in milliseconds}
    rest = {behind: milliseconds[behind] - attention[behind] for behind in milliseconds}
    return "\n".join([
        f"{what}, in turns: {_row(milliseconds)}",
        f"caches at {speed.read / 1e9:.1f} GB/s, products at {speed.multiply / 1e9:.0f} GFLOP/s: {_row(attention)}",
        f"beyond these: {_row(rest)}",
    ])  # fmt: skip


def _attention(behind: int, speed: Speed) -> float:
    """Seconds for reading keys and values once, and for the products of all heads with them."""
    return LAYERS * 2 * SIZE * behind * (CACHES * 4 / speed.read + HEADS * 2 / speed.multiply)


def _row(values: Mapping[int, float]) -> str:
    (_, first), *_, (_, last) = values.items()
    cells = ", ".join(f"{value:.1f} behind {behind}" for behind, value in values.items())
    return f"{cells} ({last / first:.2f})"
