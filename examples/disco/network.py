"""Writes network.onnx: the network of disco's task "titanic", with new weights as TensorFlow.js draws them."""

from pathlib import Path

import numpy as np
import onnx

SIZES = [5, 124, 64, 32, 1]


def main() -> None:
    random = np.random.default_rng(0)
    text, weights, value = "", [], "x"
    for n, (inputs, outputs) in enumerate(zip(SIZES, SIZES[1:], strict=False)):
        last = n == len(SIZES) - 2
        spread = np.sqrt(3 / inputs) if n == 0 else np.sqrt(6 / (inputs + outputs))  # LeCun, then Glorot
        kernel = random.uniform(-spread, spread, (inputs, outputs)).astype(np.float32)
        weights += [onnx.numpy_helper.from_array(kernel, f"kernel{n}")]
        weights += [onnx.numpy_helper.from_array(np.zeros(outputs, np.float32), f"bias{n}")]
        made = "survived" if last else f"h{n}"
        text += f"s{n} = Gemm ({value}, kernel{n}, bias{n})  {made} = {'Sigmoid' if last else 'Relu'} (s{n})\n"
        value = made
    head = '<ir_version: 10, opset_import: ["" : 20]> titanic (float[N, 5] x) => (float[N, 1] survived)'
    model = onnx.parser.parse_model(f"{head} {{ {text} }}")
    model.graph.initializer.extend(weights)
    onnx.checker.check_model(model)
    Path(__file__).with_name("network.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
