"""What a training session does in a step, as its options say: losses, optimiser, and which weights change.

Options have the same names in Python and JavaScript (there in camel case)."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

from pyruntime.errors import InvalidInput, file_bytes
from pyruntime.training.adapters.lora import lora_of

# settings of each loss, with defaults
LOSSES: dict[str, dict[str, Any]] = {
    "cross_entropy": {"ignore_index": -100, "weights": None, "smoothing": 0.0, "axis": None},
    "mse": {},
    "l1": {},
    "huber": {"delta": 1.0},
    "bce": {"logits": True},
}
# settings of each optimiser, with defaults
OPTIMIZERS: dict[str, dict[str, float]] = {
    "sgd": {"rate": 0.01, "momentum": 0.0, "nesterov": False, "decay": 0.0},
    "adam": {"rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "decay": 0.0},
    "adamw": {"rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "decay": 0.01, "transformers": False},
    "adagrad": {"rate": 0.01, "epsilon": 1e-10, "decay": 0.0},
    "lion": {"rate": 1e-4, "beta1": 0.9, "beta2": 0.99, "decay": 0.0},
}
ALIASES = {"momentum": ("sgd", {"momentum": 0.9}), "nesterov": ("sgd", {"momentum": 0.9, "nesterov": True})}
SCHEDULES: dict[str, dict[str, float]] = {
    "constant": {"warmup": 0},
    "linear": {"warmup": 0, "steps": 0, "end": 0.0},
    "cosine": {"warmup": 0, "steps": 0, "end": 0.0},
    "exponential": {"warmup": 0, "every": 1, "factor": 0.1},
}
BELOW_ONE = ("momentum", "beta1", "beta2")
MODES = ("train", "inference")
DYNAMIC = 0.0  # a scale of the loss


@dataclass(frozen=True, slots=True)
class Loss:
    """kind: a name of LOSSES, "output" or "onnx"; output: of the model, or of the graph that the loss is; target: name
    of the feed to compare with; scale: a factor of this loss in the sum of all"""

    kind: str
    output: str
    target: str = ""
    scale: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recipe:
    """trainable, frozen: patterns of names of weights; accumulates: gradients are summed over several batches before a
    step; norm_limit, value_limit: of gradients (0: none); proximal: pulls weights to where they began; step_outputs:
    outputs of the model that a step may also return, as training computes them; lora: settings of adapters;
    loss_scale: DYNAMIC, a number (1: none), or None: dynamic if the model computes in float16; memory: bytes that a
    step may need, weights included (0: no limit)"""

    losses: tuple[Loss, ...]
    optimizer: str
    settings: Mapping[str, float]
    schedule: str = "constant"
    schedule_settings: Mapping[str, float] = field(default_factory=dict)
    trainable: tuple[str, ...] | None = None
    frozen: tuple[str, ...] = ()
    accumulates: bool = False
    mode: str = "train"
    norm_limit: float = 0.0
    value_limit: float = 0.0
    proximal: float = 0.0
    seed: int = 0
    goes_on_after_nan: bool = False
    step_outputs: tuple[str, ...] = ()
    lora: Mapping[str, Any] | None = None
    loss_scale: float | None = None
    memory: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Recipe:
        data = json.loads(text)
        losses = tuple(Loss(**loss) for loss in data.pop("losses"))
        lists = {k: None if data[k] is None else tuple(data[k]) for k in ("trainable", "frozen", "step_outputs")}
        return Recipe(**{**data, **lists, "losses": losses})


def recipe_of(options: Mapping[str, Any]) -> Recipe:
    """The recipe of a session's options. Errors: InvalidInput names the option."""
    options = {name: value for name, value in options.items() if value is not None}
    _known("option", options, OPTIONS)
    found = {name: option.checked(options.get(name, option.default)) for name, option in OPTIONS.items()}
    (optimizer, settings), (schedule, timing), (norm, value) = (found[n] for n in ("optimizer", "schedule", "clip"))
    same = ("trainable", "lora", "mode", "proximal", "seed", "loss_scale", "memory")  # options that are fields
    return Recipe(
        losses=found["loss"], optimizer=optimizer, settings=settings, schedule=schedule, schedule_settings=timing,
        frozen=found["frozen"] or (), accumulates=found["accumulate"], norm_limit=norm, value_limit=value,
        goes_on_after_nan=found["on_nan"] == "go on", step_outputs=found["step_outputs"] or (),
        **{name: found[name] for name in same},
    )  # fmt: skip


def from_javascript(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options in camel case, as pages give them, in our names."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {_snake(k): v if k == "inputs" else plain(v) for k, v in value.items()}
        return [plain(v) for v in value] if isinstance(value, list) else value

    return plain(options)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of the patterns, in which * stands for any text."""
    return any(fnmatchcase(name, p) for p in patterns)


def _known(what: str, value: Mapping[str, Any], known: Any) -> None:
    for name in value:
        if name not in known:
            raise InvalidInput(f'there is no {what} "{name}"', hint=f"known: {', '.join(sorted(known))}")


def _choice(what: str, value: Any, table: Mapping[str, Mapping[str, float]]) -> tuple[str, dict[str, float]]:
    """The name in "adam" or {"adam": {"rate": 0.1}}, and all its settings."""
    name, own = (value, {}) if isinstance(value, str) else _single(what, value)
    plain = str(name).lower().replace("_", "")
    base: Mapping[str, Any] = {}
    if table is OPTIMIZERS and plain in ALIASES:
        plain, base = ALIASES[plain]
    if plain not in table:
        raise InvalidInput(f'{what} "{name}" is not known', hint=f"known: {', '.join(table)}")
    own = {k: v for k, v in own.items() if v is not None} if isinstance(own, Mapping) else {"rate": own}
    _known(f"setting of {plain}", own, table[plain])
    numbers = {k: v if isinstance(v, bool) else _setting(f"{plain}.{k}", k, v) for k, v in own.items()}
    return plain, {**table[plain], **base, **numbers}


def _single(what: str, value: Any) -> tuple[str, Any]:
    if not isinstance(value, Mapping) or len(value) != 1:
        raise InvalidInput(f"{what} cannot be {value!r}", hint="a name, or {name: settings}")
    return next(iter(value.items()))


def _number(what: str, value: Any) -> float:
    number = value if isinstance(value, (int, float)) or not hasattr(value, "__float__") else float(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not isfinite(number):
        raise InvalidInput(f"{what} cannot be {value!r}", hint="give a number")
    return number


def not_negative(what: str, value: Any) -> float:
    """Errors: InvalidInput for what is no finite number from 0 on"""
    if _number(what, value) < 0:
        raise InvalidInput(f"{what} cannot be {value!r}", hint="a number from 0 on")
    return float(value)


def _setting(what: str, name: str, value: Any) -> float:
    found = not_negative(what, value)
    if name in BELOW_ONE and found >= 1:
        raise InvalidInput(f"{what} cannot be {value!r}", hint="a number from 0 on, below 1")
    return found


def _limit(what: str, value: Any) -> float:
    if _number(what, value) <= 0:
        raise InvalidInput(f"{what} cannot be {value!r}", hint="a number above 0")
    return float(value)


def _clip(value: Any) -> tuple[float, float]:
    """Limits of the norm and of the values, 0 for none."""
    if value is None:
        return 0.0, 0.0
    if not isinstance(value, Mapping):
        return _limit("clip", value), 0.0
    _known("kind of clip", value, ("norm", "value"))
    norm, each = (_limit(f"clip.{kind}", value[kind]) if kind in value else 0.0 for kind in ("norm", "value"))
    return norm, each


def _loss_scale(value: Any) -> float | None:
    if value is None or value == "dynamic":
        return None if value is None else DYNAMIC
    if isinstance(value, str) or _number("loss_scale", value) <= 0:
        raise InvalidInput(f"loss_scale cannot be {value!r}", hint='"dynamic", or a number above 0')
    return float(value)


def _memory(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1 or value % 1:
        raise InvalidInput(f"memory cannot be {value!r}", hint="a number of bytes")
    return int(value)


def _patterns(what: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    found = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(p, str) for p in found):
        raise InvalidInput(f"{what} cannot be {value!r}", hint='names or patterns such as "head.*"')
    return found


def _losses(value: Any) -> tuple[Loss, ...]:
    each = list(value) if isinstance(value, (list, tuple)) else [value]
    if not each:
        raise InvalidInput("training needs a loss")
    return tuple(_loss(one, n) for n, one in enumerate(each))


def _loss(value: Any, n: int) -> Loss:
    """The loss number n of those that are summed."""
    if isinstance(value, str):
        return Loss("output", value)
    if not isinstance(value, Mapping):
        raise InvalidInput(f"loss cannot be {type(value).__name__}", hint='{"mse": "output"}, or the name of an output')
    rest = {name: setting for name, setting in value.items() if setting is not None}
    scale = _number("scale of a loss", rest.pop("scale", 1.0))
    target = rest.pop("target", "target" if n == 0 else f"target{n + 1}")
    if "onnx" in rest:
        return _graph_of_loss(rest, scale)
    kind = next((k for k in rest if k in LOSSES or k == "output"), "")
    if not kind:
        names = ", ".join(f'"{name}"' for name in rest) or "without a name"
        raise InvalidInput(f"loss {names} is not known", hint=f"known: output, onnx, {', '.join(LOSSES)}")
    output = rest.pop(kind)
    if not isinstance(output, str):
        raise InvalidInput(f"{kind} cannot be of {output!r}", hint="name an output of the model")
    settings = LOSSES.get(kind, {})
    _known(f"setting of {kind}", rest, settings)
    return Loss(kind, output, "" if kind == "output" else target, scale, {**settings, **_checked(rest)})


def _checked(value: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a loss that a caller gives, as JSON has them."""
    found = dict(value)
    if "delta" in value:
        found["delta"] = _limit("delta", value["delta"])
    if "smoothing" in value:
        found["smoothing"] = not_negative("smoothing", value["smoothing"])
        if found["smoothing"] > 1:
            raise InvalidInput(f"smoothing cannot be {value['smoothing']!r}", hint="a number from 0 to 1")
    if value.get("ignore_index") is not None:
        found["ignore_index"] = int(_number("ignore_index", value["ignore_index"]))
    if value.get("axis") is not None:
        found["axis"] = int(_number("axis", value["axis"]))
    if value.get("weights") is not None:
        weights = value["weights"]
        if isinstance(weights, (str, bytes, Mapping)) or not hasattr(weights, "__iter__"):
            raise InvalidInput(f"weights cannot be {weights!r}", hint="a number for each class")
        found["weights"] = [not_negative("a class's weight", w) for w in weights]
    return found


def _graph_of_loss(value: Mapping[str, Any], scale: float) -> Loss:
    """A loss that is an ONNX model: its bytes, its path, or as pages give it, bytes in base64."""
    _known("setting of onnx", value, ("onnx", "inputs", "output"))
    data, inputs = value["onnx"], value.get("inputs", {})
    if isinstance(data, (str, os.PathLike)):
        data = file_bytes(data)
    elif isinstance(data, Mapping) and data.keys() == {"base64"}:
        data = base64.b64decode(data["base64"])
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise InvalidInput(f"onnx cannot be {type(data).__name__}", hint="the bytes of an ONNX model")
    if not isinstance(inputs, Mapping) or not all(isinstance(v, str) for v in inputs.values()):
        raise InvalidInput(f"inputs cannot be {inputs!r}", hint='{"input of the loss": "output of the model"}')
    settings = {"model": base64.b64encode(data).decode(), "inputs": dict(inputs)}
    return Loss("onnx", value.get("output", ""), "", scale, settings)


# ── the options ───────────────────────────────────────────────────────────────────────────────────────────────────


class TrainingOption(NamedTuple):
    """The one declaration of an option. `python -m scripts.contract` writes from it the page's list, the TypeScript
    types and the table in docs/training.md.

    checked: the value for the recipe. Errors: InvalidInput
    type: in TypeScript; default: in Python, None if the option is absent; text: for the documentation"""

    checked: Callable[[Any], Any]
    type: str
    default: Any
    text: str


def _all_losses(value: Any) -> tuple[Loss, ...]:
    if value is None:
        raise InvalidInput("training needs a loss", hint='{"cross_entropy": "logits"}, or the name of an output')
    return _losses(value)


def _schedule(value: Any) -> tuple[str, dict[str, float]]:
    name, settings = _choice("schedule", value, SCHEDULES)
    if name in ("linear", "cosine") and settings["steps"] <= 0:
        raise InvalidInput(f'schedule "{name}" needs the number of steps', hint=f'{{"{name}": {{"steps": 1000}}}}')
    return name, settings


def _one_of(name: str, *values: str) -> Callable[[Any], str]:
    def checked(value: Any) -> str:
        if value not in values:
            raise InvalidInput(f"{name} cannot be {value!r}", hint=" or ".join(f'"{v}"' for v in values))
        return str(value)

    return checked


_SETTINGS = "Readonly<Record<string, Readonly<Record<string, {}>>>>"
_NAMES = "string | readonly string[]"
OPTIONS = {
    "loss": TrainingOption(_all_losses, "Loss | readonly Loss[]", None, "what a step reduces: see [losses](#losses)"),
    "optimizer": TrainingOption(
        lambda value: _choice("optimizer", value, OPTIMIZERS), f"string | {_SETTINGS.format('number | boolean')}",
        "adamw", "a name, or `{name: settings}`",
    ),
    "schedule": TrainingOption(
        _schedule, f"string | {_SETTINGS.format('number')}", "constant",
        "of the learning rate: `constant`, `linear`, `cosine` (both need `steps`), `exponential`; each has `warmup`",
    ),
    "trainable": TrainingOption(
        partial(_patterns, "trainable"), _NAMES, None,
        'names or patterns (`"head.*"`) of the weights to train. Without it: what operators declare as weights, and '
        "other float constants of more than one element; no scales of quantisation, and no masks",
    ),
    "frozen": TrainingOption(
        partial(_patterns, "frozen"), _NAMES, None, "names or patterns of weights that stay as they are"
    ),
    "lora": TrainingOption(
        lora_of, f"{{ readonly rank?: number; readonly alpha?: number; readonly targets?: {_NAMES} }}", None,
        "trains [adapters](#adapters) beside the weights, and of the weights only those that `trainable` names",
    ),
    "accumulate": TrainingOption(
        bool, "boolean", False, "gradients of several batches make one step: `accumulate(feeds)`, then `apply()`"
    ),
    "mode": TrainingOption(
        _one_of("mode", *MODES), "'train' | 'inference'", "train",
        '`"inference"`: Dropout drops nothing, BatchNormalization uses its running statistics',
    ),
    "clip": TrainingOption(
        _clip, "number | { readonly norm?: number; readonly value?: number }", None,
        'limit of the norm of all gradients, or `{"value": …}` for each number',
    ),
    "proximal": TrainingOption(
        partial(not_negative, "proximal"), "number", 0.0,
        "the factor μ of a term μ/2·‖w − w₀‖² that holds weights near those that were loaded last, or of the model",
    ),
    "step_outputs": TrainingOption(
        partial(_patterns, "step_outputs"), _NAMES, None,
        "names of outputs of the model that a step also computes, as training does, in `session.step_outputs`",
    ),
    "seed": TrainingOption(
        lambda value: int(_number("seed", value)), "number", 0,
        "of masks and random numbers; runs with the same seed and data repeat each other",
    ),
    "on_nan": TrainingOption(
        _one_of("on_nan", "skip", "go on"), "'skip' | 'go on'", "skip",
        'a step whose loss or gradients are not finite changes nothing, and a warning names the step; or `"go on"`',
    ),
    "memory": TrainingOption(
        _memory, "number", None,
        "bytes that a step may take with weights and moments: activations that would take more are computed again, see "
        "[Memory](#memory)",
    ),
    "loss_scale": TrainingOption(
        _loss_scale, "'dynamic' | number", None,
        '`"dynamic"`, or a number: what the loss is multiplied by before its gradients. Without it: dynamic for models '
        "that compute in float16, else 1",
    ),
}  # fmt: skip
