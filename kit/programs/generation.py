"""Long texts that transformers.js writes on the GPU, beside the same on WebAssembly: tokens, logits, and what grows."""

from __future__ import annotations

from typing import NamedTuple

from playwright.sync_api import Page

from kit.chromium import ROOT

COUNTER = ROOT / "kit" / "pages" / "gpu_counter.js"
# Largest difference of a logit, as a part of the largest logit. Half floats have 11 bits, and so have the activations
# of 4 layers that are stored as such. Rows of q4, whose accuracy_level is 4, may be rounded to 8 bits.
BOUNDS = {"fp32": 1e-5, "q4": 2e-2, "q4f16": 4e-3, "fp16": 4e-3}
MADE = ("buffers", "bind groups", "pipelines", "copied")


class Text(NamedTuple):
    """difference: of logits, as in BOUNDS; same: tokens that both devices choose; made: the tokens at which WebGPU
    objects were made or bytes were copied, by name; buffers: those made and not destroyed meanwhile; heap: growth of
    the page's JavaScript heap in bytes by another such text. The first one leaves a plan for each length."""

    same: int
    distinct: int
    difference: float
    made: dict[str, list[int]]
    buffers: int
    heap: int


def write(page: Page, precision: str, count: int) -> Text:
    """The page began with the script COUNTER (kit/programs/transformers.py). Both devices read the tokens that
    WebAssembly has chosen."""
    # transformers.js refuses fp16 on adapters without shader-f16, which this package does not need
    half = {"dtype": "fp32", "model_file_name": "model_fp16"}
    options = half if precision == "fp16" else {"dtype": precision}
    page.evaluate("([options, count]) => longText.open(options, count)", [options, count])
    found = page.evaluate("(count) => longText.compare(count)", count)
    before = _heap(page)
    page.evaluate("(count) => longText.again(count)", count)
    heap = _heap(page) - before
    page.evaluate("() => longText.close()")
    calls: list[dict[str, int]] = found.pop("calls")
    made = {name: [n for n in range(1, count) if calls[n].get(name) != calls[n - 1].get(name)] for name in MADE}
    live = [each["buffers"] - each.get("destroyed", 0) for each in calls]
    return Text(**found, made=made, buffers=live[-1] - live[0], heap=heap)


def _heap(page: Page) -> int:
    """Bytes of JavaScript objects after a garbage collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = int(session.send("Runtime.getHeapUsage")["usedSize"])
    session.detach()
    return used
