"""Reads a digit on the desktop."""

from pathlib import Path

import numpy as np

from pyruntime import InferenceSession

session = InferenceSession(Path(__file__).with_name("digits.onnx"))  # providers=["webgpu", "wasm"] for the GPU
image = np.zeros((1, 1, 28, 28), np.float32)
(probabilities,) = session.run(None, {"image": image})
print(f"A blank is read as {probabilities.argmax()}.")
