"""Reads a digit on the desktop. `pip install "pyruntime-onnx[native]"`, then `python desktop.py digits.onnx`."""

import sys

import numpy as np

from pyruntime import InferenceSession

session = InferenceSession(sys.argv[1])  # providers=["webgpu", "wasm"] for the GPU
image = np.zeros((1, 1, 28, 28), np.float32)
(probabilities,) = session.run(None, {"image": image})
print(f"A blank is read as {probabilities.argmax()}.")
