"""Writes decoder.onnx beside this file: the decoder of demo/text with random weights, for characters and for batches.

usage: python -m demo.speak.network
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from demo.text.network import Network, to_onnx

CHARACTERS = 128  # of a text at most; alphabet.js has the same number

if __name__ == "__main__":
    network = Network(np.random.default_rng(1), CHARACTERS)
    Path(__file__).with_name("decoder.onnx").write_bytes(to_onnx(network, "batch"))
