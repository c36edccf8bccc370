"""transformers.js in two pages: with this package in place of onnxruntime-web, and with onnxruntime-web."""

from __future__ import annotations

from itertools import product
from typing import Any

from playwright.sync_api import Page

from kit.programs.compare import assert_same
from kit.programs.folders import PRECISIONS

TASKS = ["features", "texts", "pictures", "generation"]
DEVICES = ["wasm", "webgpu"]
MATRIX = list(product(TASKS, DEVICES, PRECISIONS))

# Of scores and numbers. With eight bits, a tie that is rounded to the other side moves an activation by 1/255 of its
# range, and on the GPU, which adds in another order, soon changes a text. The generator of q4 has accuracy_level 4,
# with which a GPU rounds rows to 8 bits. Of such texts only the first logits are compared.
TOLERANCE = {"fp32": 1e-4, "q8": 5e-3, "q4": 1e-4}
ROUNDED = {"q8": 0.1, "q4": 0.03}  # q4 differs by up to 0.017, its logits are up to 1.3 (SwiftShader, 2026-11-27)


def open_page(page: Page, origin: str, package: str) -> None:
    """package: "ours" or "theirs"."""
    page.goto(f"{origin}/bridge/transformers.html?ort={package}")
    page.wait_for_function("globalThis.tasks")


def result(page: Page, task: str, device: str, precision: str) -> Any:
    """The results of kit/pages/transformers.js, as plain data."""
    options = {"device": device, "dtype": precision}
    return page.evaluate("([task, options]) => tasks[task](options)", [task, options])


def assert_as_original(task: str, device: str, precision: str, found: Any, expected: Any) -> None:
    """Checks that results agree, and that inputs have different results: a constant wrong result could agree."""
    if task == "generation":
        for (text,) in found["texts"]:
            assert len(set(text["generated_text"][-32:])) > 8, text
    elif task == "features":
        assert found["sentences"][0] != found["sentences"][1]
    else:
        scores = [answer["score"] for answer in found[0]]
        assert max(scores) > 2 * min(scores), found
    if (task, device) == ("generation", "webgpu") and precision in ROUNDED:
        assert_same(found["logits"], expected["logits"], ROUNDED[precision])
    else:
        assert_same(found, expected, TOLERANCE[precision])
