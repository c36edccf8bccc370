"""The weights that a training session changes: their order in vectors, their places in checkpoints, and what does not
fit them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

from pyruntime.errors import InvalidInput
from pyruntime.runtime.safetensors import check_type
from pyruntime.runtime.schedules import Plateau
from pyruntime.runtime.step_numbers import LEAST_SCALE, MOST_SCALE, StepNumbers

FORMAT = "pyruntime-training/1"  # of checkpoints
# Metadata of checkpoints and adapters. `load` applies those of metadata_of, but not the seed: it is an option.
KNOWN = [
    "format", "step", "batch", "waiting", "good_batches", "loss_scale", "optimizer", "seed", "adapter_config",
    "plateau_bad", "plateau_best", "plateau_factor", "plateau_wait",
]  # fmt: skip
MISSED = "missed/"  # before the name of a weight: in how many steps it was frozen
MOST_NAMES = 3  # in a warning
IDLE = "idle/"  # before names of states that tell which rows of moments are 0; checkpoints do not have them
AVERAGE = "average/"  # before names of the averages of weights
START = "start/"  # before names of the values that the proximal term holds weights near
GRADIENT = "gradient/"
OPTIMIZER = "optimizer/"  # then the name of a moment, a slash, and the weight's name


@dataclass(eq=False, slots=True)
class TrainedWeight:
    name: str
    shape: list[int]
    dtype: str


class TrainedWeights:
    """weights: the first `count` are trained, the others are running statistics; copies: prefixes of the states that
    begin with the values of the weights: START, AVERAGE; moments: shapes of the optimiser's states that do not have
    their weight's, by name"""

    def __init__(
        self, weights: list[TrainedWeight], count: int, copies: list[str], moments: Mapping[str, list[int]]
    ) -> None:  # fmt: skip
        self.weights = weights
        self.count = count
        self.copies = copies
        self.moments = moments
        self.is_frozen = [False for _ in range(count)]
        self.missed = [0 for _ in range(count)]  # in how many steps each was frozen

    def listed(self, trainable_only: bool) -> list[TrainedWeight]:
        return self.weights[0 : self.count] if trainable_only else self.weights

    def freeze(self, patterns: list[str], is_frozen: bool) -> list[str]:
        """Freeze the trained weights that these patterns choose, or let steps change them again; returns the names of
        all that are frozen. Errors: InvalidInput"""
        names = [weight.name for weight in self.listed(True)]
        found = chosen(names, patterns)
        self.is_frozen = [is_frozen if name in found else self.is_frozen[n] for n, name in enumerate(names)]
        return [name for n, name in enumerate(names) if self.is_frozen[n]]

    def changing(self) -> list[TrainedWeight]:
        """Those that are not frozen."""
        return [weight for n, weight in enumerate(self.listed(True)) if not self.is_frozen[n]]

    def after_step(self) -> None:
        self.missed = [missed + 1 if self.is_frozen[n] else missed for n, missed in enumerate(self.missed)]

    def numbers(self, numbers: StepNumbers) -> list[float]:
        """Those that weights have in the feed of a step (OWN)."""
        usual = numbers.of_weight(0)
        found: list[float] = []
        for n, missed in enumerate(self.missed):
            found += [0.0, 0.0, 0.0] if self.is_frozen[n] else usual if missed == 0 else numbers.of_weight(missed)
        return found

    def named(self, name: str) -> TrainedWeight:
        """Errors: InvalidInput"""
        for weight in self.weights:
            if weight.name == name:
                return weight
        known = ", ".join([weight.name for weight in self.weights])
        raise InvalidInput(f'"{name}" is not trained', hint=f"weights are {known}")

    def check(self, name: str, shape: list[int]) -> None:
        """Whether this may be a weight's new value. Errors: InvalidInput"""
        wanted = self.named(name).shape
        if wanted != shape:
            raise InvalidInput(f'"{name}" has shape {shape_text(wanted)}, not {shape_text(shape)}')

    def shape_of(self, state: str) -> list[int]:
        """Of a weight, or of a state that belongs to one. Errors: InvalidInput"""
        return self.moments[state] if state in self.moments else self.named(weight_of(state)).shape

    def copied(self, names: list[str], prefixes: list[str]) -> list[list[str]]:
        """The states that get the values of weights: each one's name, and the weight's. names: of new values, some of
        which may be of these states; prefixes: of copies"""
        found: list[list[str]] = []
        for prefix in [p for p in self.copies if p in prefixes and not any(n.startswith(p) for n in names)]:
            found += [[prefix + weight.name, weight.name] for weight in self.listed(True) if weight.name in names]
        return found

    def check_average(self) -> None:
        """Errors: InvalidInput for a session without averages"""
        if AVERAGE not in self.copies:
            raise InvalidInput("this session has no averages of its weights", hint="create it with the option ema")

    # ── vectors ──

    def size(self, trainable_only: bool) -> int:
        """How many numbers a vector of the weights has: theirs, row by row, in the order of `listed`."""
        return sum([prod(weight.shape) for weight in self.listed(trainable_only)])

    def check_vector(self, count: int, dtype: str, is_finite: bool, trainable_only: bool) -> None:
        """count, dtype: of its numbers. Errors: InvalidInput, also for numbers that are not finite, because an average
        with one of these would end the training of all"""
        size = self.size(trainable_only)
        if count != size or not dtype.startswith("float"):
            text = f"the vector has {count} numbers of {dtype}, the weights {size} of float32"
            raise InvalidInput(text, hint="give a vector that a session for this model returned")
        if not is_finite:
            raise InvalidInput("the vector has numbers that are not finite")

    # ── checkpoints ──

    def not_loaded(self, types: Mapping[str, str], metadata: Mapping[str, str]) -> str:
        """A warning of what a file has and `load` does not read, or "". types: of its tensors, by name. Errors:
        InvalidInput for a weight of a type that weights cannot have"""
        names = [weight.name for weight in self.weights]
        others: list[str] = []
        for name, dtype in types.items():
            if weight_of(name) in names:
                check_type(name, dtype)
            else:
                others.append(f'tensor "{name}"')
        known = [*KNOWN, *[MISSED + name for name in names]]
        others += [f'metadata "{key}"' for key in metadata.keys() if key not in known]
        if len(others) == 0:
            return ""
        more = f" and {len(others) - MOST_NAMES} more" if len(others) > MOST_NAMES else ""
        return f"the file has what this session does not load: {', '.join(others[0:MOST_NAMES])}{more}"

    def fitting(self, shapes: dict[str, list[int]]) -> dict[str, TrainedWeight]:
        """The values of a file that belong to the weights, with those. shapes: of all tensors of the file, by name.
        Errors: InvalidInput if a shape differs or a weight is missing"""
        known = {weight.name: weight for weight in self.weights}
        found: dict[str, TrainedWeight] = {}
        for name in shapes.keys():
            weight = known.get(weight_of(name))
            if weight is not None:
                shape = self.shape_of(name)
                if shape != shapes[name]:
                    text = f'"{name}" has shape {shape_text(shape)}, in the checkpoint {shape_text(shapes[name])}'
                    raise InvalidInput(text)
                found[name] = weight
        for weight in self.listed(True):
            if weight.name not in found:
                hint = "it belongs to another model"
                raise InvalidInput(f'the checkpoint has no weight "{weight.name}"', hint=hint)
        return found


def fits(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern, in which * stands for any text."""
    parts = pattern.split("*")
    if len(parts) == 1:
        return name == pattern
    end = len(name) - len(parts[-1])
    if not name.startswith(parts[0]) or not name.endswith(parts[-1]):
        return False
    at = len(parts[0])
    for part in parts[1 : len(parts) - 1]:
        found = name[at:end].find(part)
        if found < 0:
            return False
        at += found + len(part)
    return at <= end


def chosen(names: list[str], patterns: list[str]) -> list[str]:
    """The names that fit a pattern. Errors: InvalidInput for a pattern that fits none"""
    for pattern in patterns:
        if not any(fits(name, pattern) for name in names):
            known = ", ".join(names[0:8]) + (", …" if len(names) > 8 else "")
            raise InvalidInput(f'no trained weight has a name like "{pattern}"', hint=f"weights are {known}")
    return [name for name in names if any(fits(name, pattern) for pattern in patterns)]


def weight_of(name: str) -> str:
    """The weight that a value belongs to, such as that of its optimiser's moments."""
    for prefix in [START, GRADIENT, AVERAGE]:
        if name.startswith(prefix):
            return name[len(prefix) :]
    if name.startswith(OPTIMIZER):
        rest = name[len(OPTIMIZER) :]
        return rest[rest.find("/") + 1 :]
    return name


def metadata_of(
    numbers: StepNumbers, trained: TrainedWeights, optimizer: str, text: Callable[[float], str]
) -> Mapping[str, str]:  # fmt: skip
    """text: a number's, from which it can be read again"""
    plateau = numbers.plateau
    found: Mapping[str, str] = {
        "format": FORMAT,
        "step": str(numbers.step),
        "batch": str(numbers.batch),
        "waiting": str(numbers.waiting),
        "good_batches": str(numbers.good_batches),
        "loss_scale": text(numbers.loss_scale),
        "optimizer": optimizer,
        "seed": str(numbers.seed),
    }
    for n, weight in enumerate(trained.listed(True)):
        if trained.missed[n] > 0:
            found = {**found, MISSED + weight.name: str(trained.missed[n])}
    if not plateau.is_known:
        return found
    return {
        **found,
        "plateau_bad": str(plateau.bad),
        "plateau_best": text(plateau.best),
        "plateau_factor": text(plateau.factor),
        "plateau_wait": str(plateau.wait),
    }


def go_on_from(
    metadata: Mapping[str, str], numbers: StepNumbers, trained: TrainedWeights, optimizer: str,
    number: Callable[[str], float],
) -> None:  # fmt: skip
    """Set the numbers of a session and of its weights to those of a checkpoint. number: what a text writes, or NaN.
    Errors: InvalidInput for another optimiser, or no numbers; nothing has changed then"""
    theirs = metadata.get("optimizer", "")
    if metadata.get("format", "") == FORMAT and theirs != optimizer:
        raise InvalidInput(f"the checkpoint is of optimizer {theirs}, the session has {optimizer}")
    counts = [_count(metadata, key) for key in ["step", "batch", "waiting", "good_batches"]]
    missed = [_missed(metadata, MISSED + weight.name, counts[0]) for weight in trained.listed(True)]
    if numbers.is_dynamic and "loss_scale" in metadata:
        scale = number(metadata["loss_scale"])
        if not (LEAST_SCALE <= scale <= MOST_SCALE):
            raise InvalidInput(f'the checkpoint says loss_scale "{metadata["loss_scale"]}"', hint="it is damaged")
        numbers.loss_scale = scale
    _read_plateau(metadata, numbers.plateau, number)
    numbers.step, numbers.batch, numbers.waiting, numbers.good_batches = counts
    trained.missed = missed
    numbers.counted = 0  # the gradients that wait now are not of the batches whose losses are known


def _read_plateau(metadata: Mapping[str, str], plateau: Plateau, number: Callable[[str], float]) -> None:
    """Errors: InvalidInput"""
    is_known = "plateau_best" in metadata
    best, factor = (number(metadata.get(key, "1")) for key in ["plateau_best", "plateau_factor"])
    if not (abs(best) <= inf and 0.0 <= factor <= 1.0):
        raise InvalidInput("the checkpoint's plateau has no numbers", hint="it is damaged")
    plateau.bad, plateau.wait = [_count(metadata, key) for key in ["plateau_bad", "plateau_wait"]]
    plateau.best, plateau.factor, plateau.is_known = best, factor, is_known


def _missed(metadata: Mapping[str, str], key: str, steps: int) -> int:
    missed = _count(metadata, key)
    if missed > steps:
        raise InvalidInput(f'the checkpoint says {key} "{missed}"', hint=f"it has {steps} steps")
    return missed


def _count(metadata: Mapping[str, str], key: str) -> int:
    text = metadata.get(key, "0")
    if len(text) < 1 or len(text) > 15 or any(c not in "0123456789" for c in text):
        raise InvalidInput(f'the checkpoint says {key} "{text}"', hint="a number is expected")
    return int(text)


def shape_text(shape: Sequence[int]) -> str:
    return f"[{', '.join([str(n) for n in shape])}]"
