"""Options of runs, and the checks of what a session is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.compiler.pipeline import LEVELS
from pyruntime.errors import InvalidInput, NotSupported
from pyruntime.frontend.budget import CODE, SECONDS
from pyruntime.native.sessions.presets import PRESETS
from pyruntime.program.footprint import WHOLE


@dataclass(slots=True)
class SessionOptions:
    """graph_optimization_level: disabled, basic, extended, layout or all; disabled_passes: names of passes to leave
    out (docs/extending.md); intra_op_num_threads: 0 means what the preset says, without one 1; memory_limit: bytes of
    memory the session may use; relaxed_simd: None means where the host has it; free_dimension_overrides: numbers for
    named dims of inputs; preferred_output_location: "cpu" or "gpu-buffer", for all outputs or by name; extra has no
    effect; compile_time_limit, code_size_limit: seconds that compiling once may take, bytes of code it may give;
    preset: "latency", "throughput" or "power" (docs/api.md); sample_from: the output that is logits, in whose place
    the session gives a token (docs/api.md); choices: what `tune` measured for this model."""

    graph_optimization_level: str = "all"
    disabled_passes: Sequence[str] = ()
    intra_op_num_threads: int = 0
    memory_limit: int = WHOLE
    relaxed_simd: bool | None = None
    free_dimension_overrides: dict[str, int] = field(default_factory=dict)
    preferred_output_location: str | Mapping[str, str] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    compile_time_limit: float = SECONDS
    code_size_limit: int = CODE
    preset: str | None = None
    sample_from: str | None = None
    choices: Mapping[str, Mapping[str, int]] | None = None

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """As onnxruntime spells it."""
        self.free_dimension_overrides[name] = size


class RunOptions:
    """The third argument of `run`. `logid` and `log_severity_level` name and filter its messages. Without effect:
    `log_verbosity_level`, config entries, and `only_execute_path_to_fetches` (results are the same).

    `terminate`, set to True by another thread, ends the runs that were given these options, within a kernel, with
    Terminated; and further ones, until it is set to False."""

    __slots__ = (
        "_entries", "log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches", "terminate",
    )  # fmt: skip

    def __init__(self) -> None:
        self.logid = ""
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.only_execute_path_to_fetches = False
        self.terminate = False
        self._entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """Errors: InvalidInput for a key that was not added."""
        if key not in self._entries:
            raise InvalidInput(f'RunOptions has no config entry "{key}"')
        return self._entries[key]

    def add_active_adapter(self, adapter: Any) -> None:
        raise NotSupported("LoRA adapters cannot be read", hint="give their weights with add_initializer")


def check_options(options: Any, compiled: bool = False) -> None:
    """compiled: for a Program, which gives what it was compiled for. Errors: InvalidInput naming the option and its
    value."""

    def refuse(name: str, good: bool, hint: str) -> None:
        if not good:
            raise InvalidInput(f"{name} cannot be {getattr(options, name)!r}", hint=hint)

    def integer(name: str, least: int) -> bool:
        value = getattr(options, name)
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    level = options.graph_optimization_level
    refuse("graph_optimization_level", isinstance(level, str) and level in LEVELS, f"one of {', '.join(LEVELS)}")
    refuse("intra_op_num_threads", integer("intra_op_num_threads", 0), "an integer; 0: as the preset says")
    refuse("memory_limit", integer("memory_limit", 1), "a number of bytes")
    refuse("code_size_limit", integer("code_size_limit", 1), "a number of bytes")
    seconds = options.compile_time_limit
    good = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds > 0
    refuse("compile_time_limit", good, "a number of seconds")
    refuse("relaxed_simd", options.relaxed_simd in (None, True, False), "True, False or None")
    preset = options.preset
    good = preset is None or isinstance(preset, str) and preset in PRESETS
    refuse("preset", good, f"{', '.join(filter(None, PRESETS))} or None")
    refuse("choices", not compiled or not options.choices, "None for a compiled Program")
    refuse("sample_from", not compiled or options.sample_from is None, "None for a compiled Program")
    refuse("sample_from", isinstance(options.sample_from, (str, type(None))), "the name of an output, or None")
    overrides = options.free_dimension_overrides
    refuse("free_dimension_overrides", isinstance(overrides, Mapping), "a dict of numbers by name")


def check_run_options(options: Any) -> None:
    if options is not None and not isinstance(options, RunOptions):
        raise InvalidInput(
            f"run_options cannot be of type {type(options).__name__}", hint="pyruntime.RunOptions or None"
        )


__all__ = ["RunOptions", "SessionOptions", "check_run_options", "check_options"]
