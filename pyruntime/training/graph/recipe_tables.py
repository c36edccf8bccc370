"""Settings of losses, optimisers and schedules with their defaults, and other libraries' names of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_CLASSES = {"ignore_index": -100, "weights": None, "axis": None, "reduction": "mean"}
LOSSES: dict[str, dict[str, Any]] = {
    "cross_entropy": {**_CLASSES, "smoothing": 0.0, "soft": False},
    "nll": {**_CLASSES},
    "mse": {"reduction": "mean"},
    "l1": {"reduction": "mean"},
    "huber": {"delta": 1.0, "reduction": "mean"},
    "bce": {"logits": True, "pos_weight": None, "reduction": "mean"},
    "kl": {"log_target": False, "reduction": "batchmean"},
    "cosine": {"margin": 0.0, "reduction": "mean"},
    "triplet": {"margin": 1.0, "swap": False, "reduction": "mean"},
    "ctc": {"blank": 0, "logits": True, "batch_first": False, "zero_infinity": False, "reduction": "mean"},
}
REDUCTIONS = {"kl": ("batchmean", "mean", "sum")}
OUTPUTS = {"cosine": (1, 2), "triplet": (3,)}  # numbers of outputs that a loss compares; else one
LENGTHS = {"ctc": ("input_lengths", "target_lengths")}  # feeds besides the target
WITHOUT_TARGET = ("output", "triplet", "onnx", "function")  # whose feeds are named otherwise, or none
_ADAM = {"rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
OPTIMIZERS: dict[str, dict[str, float]] = {
    "sgd": {"rate": 0.01, "momentum": 0.0, "nesterov": False, "decay": 0.0},
    "adam": {**_ADAM, "decay": 0.0, "amsgrad": False},
    "adamw": {**_ADAM, "decay": 0.01, "amsgrad": False, "transformers": False},
    "adagrad": {"rate": 0.01, "epsilon": 1e-10, "decay": 0.0},
    "lion": {"rate": 1e-4, "beta1": 0.9, "beta2": 0.99, "decay": 0.0},
    "adafactor": {"rate": 0.01, "exponent": 0.8, "epsilon": 2.0**-23, "smallest": 1e-3, "clip": 1.0, "decay": 0.0},
    "rmsprop": {"rate": 0.01, "alpha": 0.99, "epsilon": 1e-8, "momentum": 0.0, "centered": False, "decay": 0.0},
}
_WARMUP = {"warmup": 0, "from_zero": False}
SCHEDULES: dict[str, dict[str, float]] = {
    "constant": {**_WARMUP},
    "linear": {**_WARMUP, "steps": 0, "end": 0.0},
    "polynomial": {**_WARMUP, "steps": 0, "end": 0.0, "power": 1.0},
    "cosine": {**_WARMUP, "steps": 0, "end": 0.0, "cycles": 0.5},
    "restarts": {**_WARMUP, "steps": 0, "end": 0.0, "cycles": 1},
    "exponential": {**_WARMUP, "every": 1, "factor": 0.1},
    "inversesqrt": {**_WARMUP, "timescale": 0},
    "onecycle": {"steps": 0, "start": 0.3, "divide": 25.0, "final_divide": 1e4, "linear": False},
    "plateau": {
        **_WARMUP, "factor": 0.1, "patience": 10, "threshold": 1e-4, "cooldown": 0, "end": 0.0, "largest": False,
    },
}  # fmt: skip
BELOW_ONE = ("momentum", "beta1", "beta2", "alpha", "start")
ABOVE_ZERO = ("every", "divide", "final_divide")


class Alias(NamedTuple):
    """name: ours; settings: that differ from our defaults; names: ours of theirs"""

    name: str
    settings: Mapping[str, float]
    names: Mapping[str, str] = {}


_COUNTS = {"num_warmup_steps": "warmup"}
_STEPS = {**_COUNTS, "num_training_steps": "steps"}
_OF_HUGGING_FACE = {  # by the names in transformers.optimization; the first step of a warm-up has the rate 0
    "get_constant_schedule": Alias("constant", {}),
    "get_constant_schedule_with_warmup": Alias("constant", {"from_zero": True}, _COUNTS),
    "get_linear_schedule_with_warmup": Alias("linear", {"from_zero": True}, _STEPS),
    "get_cosine_schedule_with_warmup": Alias("cosine", {"from_zero": True}, {**_STEPS, "num_cycles": "cycles"}),
    "get_cosine_with_hard_restarts_schedule_with_warmup": Alias(
        "restarts", {"from_zero": True}, {**_STEPS, "num_cycles": "cycles"}
    ),
    "get_polynomial_decay_schedule_with_warmup": Alias(
        "polynomial", {"from_zero": True, "end": 1e-7}, {**_STEPS, "lr_end": "end", "power": "power"}
    ),
    "get_inverse_sqrt_schedule": Alias("inversesqrt", {"from_zero": True}, {**_COUNTS, "timescale": "timescale"}),
}
ALIASES = {
    "momentum": Alias("sgd", {"momentum": 0.9}, {n: n for n in OPTIMIZERS["sgd"]}),
    "nesterov": Alias("sgd", {"momentum": 0.9, "nesterov": True}, {n: n for n in OPTIMIZERS["sgd"]}),
    "amsgrad": Alias("adam", {"amsgrad": True}, {n: n for n in OPTIMIZERS["adam"]}),
    **{name.replace("_", ""): alias for name, alias in _OF_HUGGING_FACE.items()},
}
