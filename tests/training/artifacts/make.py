"""Makes the artifacts in this folder, and what onnxruntime-training computes with them. In a virtual environment:

pip install onnxruntime-training==1.19.2 onnx==1.16.2 "numpy<2"; python make.py
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

HERE = Path(__file__).parent


def stand_in(name: str) -> None:
    """A module for `import`: onnxruntime.training imports torch, which artifacts do not need."""

    class Module(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return MagicMock()

    made = Module(name)
    made.__path__ = []
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = made


for _name in ("torch", "torch.nn", "torch.utils", "torch.utils.data", "torch.utils.dlpack", "torch.onnx"):
    stand_in(_name)
for _name in ("torch.utils.cpp_extension", "torch.utils.checkpoint", "onnxruntime.training.ortmodule"):
    stand_in(_name)
sys.modules["torch"].optim = types.SimpleNamespace(Optimizer=object)  # type: ignore[attr-defined]
sys.modules["onnxruntime.training.ortmodule"].ORTModule = object  # type: ignore[attr-defined]

from onnxruntime.training import artifacts, onnxblock  # noqa: E402
from onnxruntime.training.api import CheckpointState, Module, Optimizer  # noqa: E402

random = np.random.default_rng(0)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def weight(*shape: int) -> np.ndarray:
    return (random.normal(size=shape) * 0.3).astype(np.float32)


def model(nodes: list[Any], feed: tuple[str, list[Any]], output: tuple[str, list[Any]], **weights: np.ndarray) -> Any:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [info(feed[0], T.FLOAT, feed[1])], [info(output[0], T.FLOAT, output[1])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7)


class Clipped(onnxblock.ForwardBlock):
    """AdamW with a limit of the norm of all gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizer = onnxblock.optim.AdamW(clip_grad=onnxblock.optim.ClipGradNorm(0.5), weight_decay=0.1)

    def build(self, parameters: Any) -> Any:
        return self.optimizer(parameters)


def write(name: str, net: Any, loss: Any, optimizer: Any, trained: str, frozen: str = "", **more: Any) -> None:
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    lists = {"requires_grad": trained.split(), "frozen_params": frozen.split()}
    artifacts.generate_artifacts(net, **lists, loss=loss, optimizer=optimizer, artifact_directory=folder, **more)
    has_evaluation = name != "normalised"  # onnxruntime does not open that one
    state = CheckpointState.load_checkpoint(folder / "checkpoint")
    module = Module(folder / "training_model.onnx", state, folder / "eval_model.onnx" if has_evaluation else None)
    step = Optimizer(folder / "optimizer_model.onnx", module)
    step.set_learning_rate(0.05)
    shape = [
        4 if d == "N" else d
        for d in (d.dim_value or d.dim_param for d in net.graph.input[0].type.tensor_type.shape.dim)
    ]
    batches = random.normal(size=(6, *shape)).astype(np.float32)
    labels = random.integers(0, 3, (6, 4)) if "labels" in module.input_names() else None
    targets = random.normal(size=(6, 4, 3)).astype(np.float32) if labels is None else labels
    losses, evaluated = [], []
    for n, (x, y) in enumerate(zip(batches, targets, strict=True)):
        found = module(x, y)
        losses.append(found[0] if isinstance(found, tuple) else found)
        if n % 2:  # gradients of two batches make a step
            step.step()
            module.lazy_reset_grad()
        if has_evaluation:
            module.eval()
            found = module(x, y)
            evaluated.append(found[0] if isinstance(found, tuple) else found)
            module.train()
    vector = module.get_contiguous_parameters(False).numpy()
    arrays = {"batches": batches, "targets": targets, "losses": losses, "evaluated": evaluated, "parameters": vector}
    np.savez_compressed(folder / "expected.npz", **arrays)
    CheckpointState.save_checkpoint(state, folder / "trained", include_optimizer_state=True)
    module(batches[0], targets[0])
    step.step()
    np.savez_compressed(folder / "next.npz", parameters=module.get_contiguous_parameters(False).numpy())


CE, MSE = artifacts.LossType.CrossEntropyLoss, artifacts.LossType.MSELoss
pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
convolved = [
    node("Conv", "image w1 b1", "c1", pads=[1] * 4),
    node("Relu", "c1", "r1"),
    node("MaxPool", "r1", "p1", **pool),
]
last = [node("Flatten", "p1", "f"), node("Gemm", "f w2 b2", "logits", transB=1)]
image, logits = ("image", ["N", 1, 6, 6]), ("logits", ["N", 3])
layers = {"w1": weight(4, 1, 3, 3), "b1": weight(4), "w2": weight(3, 36), "b2": weight(3)}
write("classifier", model([*convolved, *last], image, logits, **layers), CE, artifacts.OptimType.AdamW, "w1 b1 w2 b2",
      additional_output_names=["logits"])  # fmt: skip
write("clipped", model([*convolved, *last], image, logits, **layers), CE, Clipped(), "w1 b1 w2 b2")
dense = [node("Gemm", "x w1 b1", "a"), node("Tanh", "a", "b"), node("Gemm", "b w2 b2", "y")]
parts = {"w1": weight(6, 8), "b1": weight(8), "w2": weight(8, 3), "b2": weight(3)}
net = model(dense, ("x", ["N", 6]), ("y", ["N", 3]), **parts)
write("frozen", net, MSE, artifacts.OptimType.SGD, "w2 b2", "w1 b1", nominal_checkpoint=True)
normalised = [
    node("Conv", "image w1 b1", "c1", pads=[1] * 4),
    node("BatchNormalization", "c1 s t mean var", "n m v", training_mode=1),
    node("Relu", "n", "r1"), node("MaxPool", "r1", "p1", **pool), node("Flatten", "p1", "g"),
    node("Dropout", "g ratio yes", "f mask"), last[1],
]  # fmt: skip
more = {
    "s": np.ones(4, np.float32), "t": weight(4), "mean": np.zeros(4, np.float32), "var": np.ones(4, np.float32),
    "ratio": np.array(0, np.float32), "yes": np.array(True),
}  # fmt: skip
write(
    "normalised", model(normalised, image, logits, **layers, **more), CE, artifacts.OptimType.AdamW, "w1 b1 s t w2 b2"
)
os.remove(HERE / "normalised/eval_model.onnx")
