"""Writes tests/training/peft_steps.npz: what PEFT makes of adapters in 20 steps, and their files.

PEFT is not one of the project's packages, so this runs in an environment of its own (pip install torch onnx onnxscript
peft; used with torch 2.13.0 and PEFT 0.21.2): python -m kit.peft_steps"""

from __future__ import annotations

import io
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

VECTORS = Path(__file__).parents[1] / "tests" / "training" / "peft_steps.npz"
STEPS, RANK, ALPHA, RATE = 20, 2, 3, 0.02


@dataclass(frozen=True)
class Case:
    """layers: of the module; shape: of a batch; config: of PEFT, besides rank and alpha; optimizer: torch's name"""

    layers: str
    shape: tuple[int, ...]
    config: dict[str, Any] = field(default_factory=dict)
    optimizer: str = "AdamW"


PICTURES = (
    "Conv2d(2, 4, 3, 2, 1), ReLU(), Conv2d(4, 4, (1, 3), bias=False), Tanh(), Conv2d(4, 3, 1), Flatten(), Linear(24, 5)"
)
SOUND = "Conv1d(2, 4, 3, padding=1), GELU(), Conv1d(4, 3, 1), Flatten(), Linear(27, 5)"
ROWS = "Linear(4, 6), Tanh(), Linear(6, 5, bias=False)"
RANDOM = {"init_lora_weights": False}  # also of B, so that all gradients are other than zero in the first step
CASES = {
    "convolutions": Case(PICTURES, (3, 2, 8, 8)),
    "convolutions, DoRA": Case(PICTURES, (3, 2, 8, 8), {"use_dora": True}),
    "convolutions, DoRA, random": Case(PICTURES, (3, 2, 8, 8), {"use_dora": True, **RANDOM}, "SGD"),
    "sound, DoRA": Case(SOUND, (3, 2, 9), {"use_dora": True, **RANDOM}),
    "products": Case(ROWS, (3, 7, 4), RANDOM),
    "products, DoRA": Case(ROWS, (3, 7, 4), {"use_dora": True, **RANDOM}),
}


def main() -> None:
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        found |= {f"{name}/{key}": value for key, value in steps(case).items()}
    np.savez_compressed(VECTORS, **found)


def steps(case: Case) -> dict[str, Any]:
    """The exported model, a batch, the losses of the steps, the adapter's files before, after one and after all, and
    what the module then computes."""
    import peft
    import torch

    torch.manual_seed(0)
    module = eval(f"torch.nn.Sequential({case.layers})", {"torch": torch, **vars(torch.nn)})
    x = torch.randn(case.shape)
    target = torch.randn(module(x).shape)
    file = io.BytesIO()
    torch.onnx.export(module, (x,), file, dynamo=False, input_names=["x"], output_names=["y"], dynamic_axes={"x": [0]})
    targets = [n for n, layer in enumerate(module) if hasattr(layer, "weight")]
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=[f"{n}" for n in targets], **case.config)
    adapted = peft.get_peft_model(module, config)
    adapted.train()
    trained = [p for p in adapted.parameters() if p.requires_grad]
    optimizer = getattr(torch.optim, case.optimizer)(trained, lr=RATE)
    files, losses = {"start": saved(adapted)}, []
    for n in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(adapted(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if n + 1 in (1, STEPS):
            files[f"after {n + 1}"] = saved(adapted)
    arrays = {"x": x.numpy(), "target": target.numpy(), "losses": losses, "y": adapted(x).detach().numpy()}
    weights, settings = ({key: pair[n] for key, pair in files.items()} for n in range(2))
    return arrays | {"model": octets(file.getvalue()), "config": octets(settings["start"])} | {
        key: octets(data) for key, data in weights.items()
    }  # fmt: skip


def saved(adapted: Any) -> tuple[bytes, bytes]:
    """PEFT's two files."""
    with tempfile.TemporaryDirectory() as folder:
        adapted.save_pretrained(folder)
        return tuple((Path(folder) / n).read_bytes() for n in ("adapter_model.safetensors", "adapter_config.json"))


def octets(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


if __name__ == "__main__":
    main()
