"""python -m bench.torch_export FOLDER: networks, batches and losses of PyTorch for `python -m bench learning`.

It needs torch, onnx and onnxscript, which nothing else here installs; used with torch 2.13.0 and onnxscript 0.7.2.
Each network is exported four times: by both exporters, as they do by default and as they keep a network for training.
"""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.torch_nets import NETS, Batch, Net

STEPS = 50
EXPORTS: dict[str, dict[str, Any]] = {
    "dynamo": {"dynamo": True},
    "script": {"dynamo": False},
    "dynamo for training": {"dynamo": True, "optimize": False},
    "script for training": {
        "dynamo": False, "training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False
    },
}  # fmt: skip


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or NETS:
        write(folder, name, NETS[name])
        print(name, flush=True)


def write(folder: Path, name: str, net: Net) -> None:
    """The files of a network, its batches, and what PyTorch makes of each file's module in the same steps."""
    torch.manual_seed(0)
    module = net.make()
    batches = [net.batch() for _ in range(STEPS + 1)]
    arrays: dict[str, Any] = {"loss": net.loss}
    for n, (inputs, target) in enumerate(batches):
        arrays |= {f"{n}/{k}": x.numpy() for k, x in enumerate(inputs)} | {f"{n}/target": target.numpy()}
    for kind, options in EXPORTS.items():
        copied = copy.deepcopy(module).train("training" in kind)
        path = folder / f"{name}.{kind}.onnx"
        torch.onnx.export(copied, batches[0][0], str(path), verbose=False, **options)
        # after the export, because tracing in training mode changes running statistics
        exact = trained(copy.deepcopy(copied).double(), net, [doubled(batch) for batch in batches])
        arrays |= {f"{kind}/{key}": value for key, value in trained(copied, net, batches).items()}
        arrays |= {f"{kind}/exact {key}": value for key, value in exact.items()}
    np.savez(folder / f"{name}.npz", **arrays)


def doubled(batch: Batch) -> Batch:
    """In float64: where PyTorch's own results are far from it, rounding decides. Adam makes steps of gradients that are
    zero but for rounding, as those of biases before BatchNormalization."""
    inputs, target = (tuple(x.double() if x.is_floating_point() else x for x in xs) for xs in (batch[0], batch[1:]))
    return inputs, target[0]


def trained(module: nn.Module, net: Net, batches: list[Batch]) -> dict[str, Any]:
    """Losses of the steps; then loss and output of the last batch, in inference; the number of parameters."""
    module.train()
    optimizer = torch.optim.AdamW(module.parameters())
    losses = []
    for inputs, target in batches[:-1]:
        optimizer.zero_grad()
        loss = loss_of(net.loss, module(*inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    module.eval()
    with torch.no_grad():
        found = module(*batches[-1][0])
        held = loss_of(net.loss, found, batches[-1][1]).item()
    count = sum(p.numel() for p in module.parameters())
    return {"losses": losses, "held": held, "output": found.numpy(), "count": count}


def loss_of(kind: str, y: Tensor, target: Tensor) -> Tensor:
    if kind == "cross_entropy":
        is_last = target.shape == y.shape[:-1] and y.dim() > 2  # logits (N, T, words)
        return F.cross_entropy(y.flatten(0, 1), target.flatten()) if is_last else F.cross_entropy(y, target)
    losses: dict[str, nn.Module] = {
        "mse": nn.MSELoss(), "l1": nn.L1Loss(), "huber": nn.HuberLoss(), "bce": nn.BCEWithLogitsLoss(),
        "bce of probabilities": nn.BCELoss(),
    }  # fmt: skip
    return losses[kind](y, target)


if __name__ == "__main__":
    main()
