"""What a training session does in a step, as its options say: losses, optimiser, and which weights change.

Options have the same names in Python and JavaScript (there in camel case)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

from pyruntime.errors import InvalidInput
from pyruntime.runtime.trained_weights import AVERAGE, START, fits
from pyruntime.training.adapters.lora import lora_of
from pyruntime.training.graph.loss_models import Loss, distillation, function_loss, graph_of_loss
from pyruntime.training.graph.option_checks import check_names, limit, not_negative, number, patterns, single
from pyruntime.training.graph.recipe_tables import (
    ABOVE_ZERO,
    ALIASES,
    BELOW_ONE,
    LENGTHS,
    LOSSES,
    OPTIMIZERS,
    OUTPUTS,
    REDUCTIONS,
    SCHEDULES,
    WITHOUT_TARGET,
    Alias,
)
from pyruntime.training.graph.trace_check import function_optimizer
from pyruntime.training.graph.traced_functions import FUNCTIONS, trace_update, traced

MODES = ("train", "inference")
DYNAMIC = 0.0  # a scale of the loss
VECTORS = "vectors"  # what no_decay calls weights with at most one axis longer than 1: biases, scales of norms


@dataclass(frozen=True, slots=True)
class Group:
    """match: patterns of names of weights; rate: of learning, which the schedule changes as that of the others; decay:
    of the optimiser. None: as for other weights"""

    match: tuple[str, ...]
    rate: float | None = None
    decay: float | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """trainable, frozen, no_decay: patterns of names of weights; accumulates: gradients are summed over several batches
    before a step; norm_limit, value_limit: of gradients (0: none); proximal: pulls weights to where they began;
    step_outputs: outputs of the model that a step may also return, as training computes them; lora: settings of
    adapters; loss_scale: DYNAMIC, a number (1: none), or None: dynamic if the model computes in float16; memory: bytes
    that a step may need, weights included (0: no limit); groups: of weights with settings of their own; positive: names
    of weights that are scales of quantisation; update: of an optimiser that is a function, its trace for each rank;
    ema: how much of the averages of weights a step keeps (0: no averages)"""

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
    groups: tuple[Group, ...] = ()
    no_decay: tuple[str, ...] = ()
    scales: str = "fixed"
    zeros: str = "train"
    positive: tuple[str, ...] = ()
    update: tuple[Any, ...] = ()
    ema: float = 0.0

    @property
    def step_settings(self) -> Mapping[str, float]:
        """Of the optimiser, which the host of a step knows."""
        return {"rate": self.settings["rate"]} if self.update else self.settings

    @property
    def copies(self) -> list[str]:
        """Prefixes of the states that begin with the values of weights."""
        return [*([START] if self.proximal else []), *([AVERAGE] if self.ema else [])]

    def settings_of(self, name: str, shape: Sequence[Any]) -> dict[str, float]:
        """The settings of the optimiser for a weight: of the first group that it belongs to."""
        group = next((g for g in self.groups if matches(name, g.match)), Group(()))
        own = {k: v for k, v in (("rate", group.rate), ("decay", group.decay)) if v is not None}
        is_vector = self.no_decay == (VECTORS,) and sum(d != 1 for d in shape) < 2
        stays = is_vector or name in self.positive or matches(name, self.no_decay)
        return {**self.settings, **own, **({"decay": 0.0} if stays else {})}

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Recipe:
        data = json.loads(text)
        losses = tuple(Loss(**loss) for loss in data.pop("losses"))
        names = ("trainable", "frozen", "step_outputs", "no_decay", "positive", "update")
        lists = {k: None if data[k] is None else tuple(data[k]) for k in names}
        groups = tuple(Group(**{**group, "match": tuple(group["match"])}) for group in data["groups"])
        return Recipe(**{**data, **lists, "losses": losses, "groups": groups})


def recipe_of(options: Mapping[str, Any]) -> Recipe:
    """The recipe of a session's options. Errors: InvalidInput names the option."""
    options = traced({name: value for name, value in options.items() if value is not None})
    check_names("option", options, OPTIONS)
    found = {name: option.checked(options.get(name, option.default)) for name, option in OPTIONS.items()}
    if found["lora"] and found["zeros"] == "keep":
        raise InvalidInput('zeros="keep" is not for adapters', hint="half of their matrices start as zeros")
    (schedule, timing), (norm, value) = (found[n] for n in ("schedule", "clip"))
    optimizer, settings, update = found["optimizer"]
    same = ("trainable", "lora", "mode", "proximal", "seed", "loss_scale", "memory", "scales", "zeros", "ema")  # fields
    return Recipe(
        losses=found["loss"], optimizer=optimizer, settings=settings, update=update,
        schedule=schedule, schedule_settings=timing,
        frozen=found["frozen"] or (), accumulates=found["accumulate"], norm_limit=norm, value_limit=value,
        goes_on_after_nan=found["on_nan"] == "go on", step_outputs=found["step_outputs"] or (),
        groups=_of_optimizer(found["groups"], settings), no_decay=found["no_decay"] or (),
        **{name: found[name] for name in same},
    )  # fmt: skip


def from_javascript(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options in camel case, as pages give them, in our names."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {_snake(k): v if k in ("inputs", "function") else plain(v) for k, v in value.items()}
        return [plain(v) for v in value] if isinstance(value, list) else value

    return plain(options)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of the patterns, in which * stands for any text."""
    return any(fits(name, p) for p in patterns)


def _choice(what: str, value: Any, table: Mapping[str, Mapping[str, float]]) -> tuple[str, dict[str, float]]:
    """The name in "adam" or {"adam": {"rate": 0.1}}, and all its settings."""
    name, own = (value, {}) if isinstance(value, str) else single(what, value)
    plain = str(name).lower().replace("_", "")
    alias = ALIASES.get(plain, Alias(plain, {}))
    if alias.name not in table:
        raise InvalidInput(f'{what} "{name}" is not known', hint=f"known: {', '.join(table)}")
    known = table[alias.name]
    own = {k: v for k, v in own.items() if v is not None} if isinstance(own, Mapping) else {"rate": own}
    names = alias.names if plain in ALIASES else {k: k for k in known}
    check_names(f"setting of {name}", own, names)
    numbers = {names[k]: _setting(f"{name}.{k}", names[k], v, known[names[k]]) for k, v in own.items()}
    return alias.name, {**known, **alias.settings, **numbers}


def _setting(what: str, name: str, value: Any, default: float) -> float:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise InvalidInput(f"{what} cannot be {value!r}", hint="true or false")
        return value
    found = not_negative(what, value)
    if name in BELOW_ONE and found >= 1:
        raise InvalidInput(f"{what} cannot be {value!r}", hint="a number from 0 on, below 1")
    return limit(what, value) if name in ABOVE_ZERO else found


def _clip(value: Any) -> tuple[float, float]:
    """Limits of the norm and of the values, 0 for none."""
    if value is None:
        return 0.0, 0.0
    if not isinstance(value, Mapping):
        return limit("clip", value), 0.0
    check_names("kind of clip", value, ("norm", "value"))
    norm, each = (limit(f"clip.{kind}", value[kind]) if kind in value else 0.0 for kind in ("norm", "value"))
    return norm, each


def _ema(value: Any) -> float:
    if value is not None and not 0 < number("ema", value) < 1:
        raise InvalidInput(f"ema cannot be {value!r}", hint="a number between 0 and 1, such as 0.999")
    return float(value or 0.0)


def _loss_scale(value: Any) -> float | None:
    if value is None or value == "dynamic":
        return None if value is None else DYNAMIC
    if isinstance(value, str) or number("loss_scale", value) <= 0:
        raise InvalidInput(f"loss_scale cannot be {value!r}", hint='"dynamic", or a number above 0')
    return float(value)


def _memory(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1 or value % 1:
        raise InvalidInput(f"memory cannot be {value!r}", hint="a number of bytes")
    return int(value)


def _groups(value: Any) -> tuple[Group, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or not all(isinstance(g, Mapping) for g in value):
        raise InvalidInput(f"groups cannot be {value!r}", hint='[{"match": "head.*", "rate": 0.01, "decay": 0}]')
    return tuple(_group({k: v for k, v in g.items() if v is not None}) for g in value)


def _group(value: Mapping[str, Any]) -> Group:
    check_names("setting of a group", value, ("match", "rate", "decay"))
    match = patterns("match", value.get("match"))
    if not match:
        raise InvalidInput("a group needs names of weights", hint='{"match": "head.*", "rate": 0.01}')
    return Group(match, *(None if k not in value else not_negative(k, value[k]) for k in ("rate", "decay")))


def _of_optimizer(groups: tuple[Group, ...], settings: Mapping[str, float]) -> tuple[Group, ...]:
    """Errors: InvalidInput for rates whose proportion to that of the optimiser is not known"""
    if settings["rate"] <= 0 and any(g.rate is not None for g in groups):
        raise InvalidInput("rates of groups need a rate of the optimizer above 0", hint="freeze weights by `frozen`")
    return groups


def _losses(value: Any) -> tuple[Loss, ...]:
    each = list(value) if isinstance(value, (list, tuple)) else [value]
    if not each:
        raise InvalidInput("training needs a loss")
    return tuple(part for n, one in enumerate(each) for part in _loss(one, n))


def _loss(value: Any, n: int) -> list[Loss]:
    """The loss number n of those that are summed; two for a teacher and labels."""
    if isinstance(value, str):
        return [Loss("output", value)]
    if not isinstance(value, Mapping):
        raise InvalidInput(f"loss cannot be {type(value).__name__}", hint='{"mse": "output"}, or the name of an output')
    rest = {name: setting for name, setting in value.items() if setting is not None}
    scale = number("scale of a loss", rest.pop("scale", 1.0))
    kind = next((k for k in ("onnx", "distill", "function", *LOSSES, "output") if k in rest), "")
    if kind in WITHOUT_TARGET and "target" in rest:
        raise InvalidInput(f'the loss "{kind}" has no setting "target"', hint="labels of functions name themselves")
    target = rest.pop("target", "target" if n == 0 else f"target{n + 1}")
    if not isinstance(target, str) or not target:
        raise InvalidInput(f"target cannot be {target!r}", hint='the name of a feed, such as "labels"')
    if kind == "onnx":
        return [graph_of_loss(rest, scale)]
    if kind == "distill":
        return distillation(rest, target, scale)
    if kind == "function":
        check_names("setting of function", rest, ("function",))
        return [function_loss(rest["function"], scale)]
    if not kind:
        names = ", ".join(f'"{name}"' for name in rest) or "without a name"
        known = ("output", "onnx", "distill", "function", *LOSSES)
        raise InvalidInput(f"loss {names} is not known", hint=f"known: {', '.join(known)}")
    compared = rest.pop(kind)
    lengths = tuple(rest.pop(name, name if n == 0 else f"{name}{n + 1}") for name in LENGTHS.get(kind, ()))
    settings = LOSSES.get(kind, {})
    check_names(f"setting of {kind}", rest, settings)
    output, *more = _compared(kind, compared)
    own = {name: _loss_setting(kind, name, value) for name, value in rest.items()}
    target = "" if kind in WITHOUT_TARGET else target
    return [Loss(kind, output, target, scale, {**settings, **own}, tuple(more), lengths)]


def _compared(kind: str, value: Any) -> list[str]:
    """The outputs of the model that a loss compares."""
    counts = OUTPUTS.get(kind, (1,))
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names) or len(names) not in counts:
        several = f"name {' or '.join(map(str, counts))} outputs of the model"
        hint = "name an output of the model" if counts == (1,) else several
        raise InvalidInput(f"{kind} cannot be of {value!r}", hint=hint)
    return list(names)


def _loss_setting(kind: str, name: str, value: Any) -> Any:
    """A setting that a caller gives, as JSON has it. Errors: InvalidInput"""
    if name == "reduction":
        known = REDUCTIONS.get(kind, ("mean", "sum"))
        return _one_of("reduction", *known)(value)
    if isinstance(LOSSES[kind][name], bool):
        if not isinstance(value, bool):
            raise InvalidInput(f"{name} cannot be {value!r}", hint="true or false")
        return value
    return _LOSS_SETTINGS[name](name, value)


def _share(name: str, value: Any) -> float:
    if not_negative(name, value) > 1:
        raise InvalidInput(f"{name} cannot be {value!r}", hint="a number from 0 to 1")
    return float(value)


def _whole(name: str, value: Any) -> int:
    return int(number(name, value))


def _class_weights(name: str, value: Any) -> list[float]:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise InvalidInput(f"{name} cannot be {value!r}", hint="a number for each class")
    return [not_negative("a class's weight", w) for w in value]


def _positive_weights(name: str, value: Any) -> list[float]:
    """A number for all, or one for each place of the last axis."""
    is_one = isinstance(value, (int, float)) or getattr(value, "shape", None) == ()
    return _class_weights(name, [value] if is_one else value)


_LOSS_SETTINGS: dict[str, Callable[[str, Any], Any]] = {
    "delta": lambda name, value: limit(name, value),
    "margin": lambda name, value: number(name, value),
    "smoothing": _share,
    "ignore_index": _whole,
    "axis": _whole,
    "blank": _whole,
    "weights": _class_weights,
    "pos_weight": _positive_weights,
}


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


def _optimizer(value: Any) -> tuple[str, dict[str, float], tuple[Any, ...]]:
    """Name, settings, and the traces of a function."""
    if not isinstance(value, Mapping) or "function" not in value:
        name, settings = _choice("optimizer", value, OPTIMIZERS)
        function = FUNCTIONS.get(name)
        return name, settings, tuple(trace_update(function)) if function else ()
    return function_optimizer(single("optimizer", value)[1])


def _schedule(value: Any) -> tuple[str, dict[str, float]]:
    name, settings = _choice("schedule", value, SCHEDULES)
    if settings.get("steps", 1) <= 0:
        raise InvalidInput(f'schedule "{name}" needs the number of steps', hint=f'{{"{name}": {{"steps": 1000}}}}')
    return name, {k: float(v) for k, v in settings.items()}


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
        _optimizer, f"string | UpdateFunction | {_SETTINGS.format('number | boolean | UpdateFunction')}",
        "adamw", "a name, `{name: settings}`, or [a function](#functions)",
    ),
    "schedule": TrainingOption(
        _schedule, f"string | {_SETTINGS.format('number | boolean')}", "constant",
        "of the learning rate: see [schedules](#schedules)",
    ),
    "groups": TrainingOption(
        _groups, f"readonly {{ readonly match: {_NAMES}; readonly rate?: number; readonly decay?: number }}[]", None,
        'a rate or a decay of their own for some weights: `[{"match": "head.*", "rate": 0.01, "decay": 0}]`. A weight '
        "belongs to the first group that names it; the schedule changes all rates in proportion",
    ),
    "no_decay": TrainingOption(
        partial(patterns, "no_decay"), _NAMES, None,
        '`"vectors"`: biases, scales of norms and other weights with at most one axis longer than 1 do not decay; or '
        "names or patterns",
    ),
    "trainable": TrainingOption(
        partial(patterns, "trainable"), _NAMES, None,
        'names or patterns (`"head.*"`) of the weights to train. Without it the model\'s '
        "[parameters](#what-is-a-parameter)",
    ),
    "frozen": TrainingOption(
        partial(patterns, "frozen"), _NAMES, None, "names or patterns of weights that stay as they are"
    ),
    "lora": TrainingOption(
        lora_of,
        "{ readonly rank?: number; readonly alpha?: number; readonly dora?: boolean; "
        f"readonly targets?: {_NAMES} }}", None,
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
    "ema": TrainingOption(
        _ema, "number", None,
        "keeps averages of the weights: after each step ema · average + (1 − ema) · weight, such as 0.999: see "
        "[Averages](#averages)",
    ),
    "step_outputs": TrainingOption(
        partial(patterns, "step_outputs"), _NAMES, None,
        "names of outputs of the model that a step also computes, as training does, in `session.step_outputs`",
    ),
    "seed": TrainingOption(
        lambda value: int(number("seed", value)), "number", 0,
        "of masks and random numbers; runs with the same seed and data repeat each other",
    ),
    "scales": TrainingOption(
        _one_of("scales", "fixed", "lsq"), "'fixed' | 'lsq'", "fixed",
        '`"lsq"`: also trains the scales of QuantizeLinear: see [Quantisation](#quantisation)',
    ),
    "zeros": TrainingOption(
        _one_of("zeros", "train", "keep"), "'train' | 'keep'", "train",
        '`"keep"`: zeros of weights with two axes and more stay zeros, as [pruned blocks](use/smaller.md#pruning) are',
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
