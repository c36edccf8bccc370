"""Options of a run, and their check."""

from __future__ import annotations

import math
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.options import FLAG, RUN_ENTRIES, SHRINK, Kind, instance, unknown_entry, unknown_option

_NUMBER = instance(int, "an integer")
# The default and the values of each option
_OPTIONS: dict[str, tuple[Any, Kind]] = {
    "logid": ("", instance(str, "a text")),
    "log_severity_level": (-1, _NUMBER),
    "log_verbosity_level": (0, _NUMBER),
    "only_execute_path_to_fetches": (False, FLAG),
    "terminate": (False, FLAG),
}


class RunOptions:
    """Options of a run, the third argument of `run`.

    logid, log_severity_level: the name of its messages, and the least severity of those that are logged
    terminate: another thread sets it to True to end the runs with these options, within a kernel, by Terminated. Later
        runs end, too, until it is False.
    only_execute_path_to_fetches: every run does so, whatever the value
    The entry "memory.enable_memory_arena_shrinkage" trims the session after the run. `log_verbosity_level` and other
    entries have no effect, and give one warning.
    """

    logid: str
    log_severity_level: int
    log_verbosity_level: int
    only_execute_path_to_fetches: bool
    terminate: bool
    __slots__ = (
        "_active", "_entries", "log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches",
        "terminate",
    )  # fmt: skip

    def __init__(self) -> None:
        for name in _OPTIONS:
            setattr(self, name, None)
        self._active: list[tuple[Any, float]] = []
        self._entries: dict[str, str] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        """None is the default. Errors: InvalidInput for a value of another type, UnknownOption"""
        if name[0] != "_" and not hasattr(type(self), name):
            public = [known for known in RunOptions.__slots__ if known[0] != "_"]
            raise unknown_option(f"RunOptions has no option {name!r}", name, public)
        if name in _OPTIONS:
            default, kind = _OPTIONS[name]
            value = default if value is None else value
            if not kind.takes(value):
                raise InvalidInput(f"{name} cannot be {value!r}", hint=kind.wants)
        object.__setattr__(self, name, value)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Errors: InvalidInput for a key or value that is not a text"""
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput(f"key and value of an entry must be texts, not {key!r} and {value!r}")
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """Errors: InvalidInput for a key that was not added."""
        if key not in self._entries:
            raise InvalidInput(f'RunOptions has no config entry "{key}"')
        return self._entries[key]

    def others(self) -> list[str]:
        """Names of the options that are set, without adapters."""
        defaults = RunOptions()
        names = [name for name in RunOptions.__slots__ if name != "_active"]
        return [name.strip("_") for name in names if getattr(self, name) != getattr(defaults, name)]

    @property
    def adapters(self) -> list[tuple[Any, float]]:
        """What `add_active_adapter` has added, with weights. Errors: InvalidInput if it is set."""
        return self._active

    @adapters.setter
    def adapters(self, value: object) -> None:
        raise InvalidInput("adapters of RunOptions cannot be set", hint="add_active_adapter(name, weight)")

    @property
    def shrinks(self) -> bool:
        """Whether the session gives back memory after the run."""
        return bool(self._entries.get(SHRINK))

    def without_effect(self) -> list[str]:
        """A sentence for each option that is set but changes nothing."""
        found = [unknown_entry("run", key) for key in self._entries if key not in RUN_ENTRIES]
        if self.log_verbosity_level:
            found.append('the run option "log_verbosity_level" has no effect: verbose messages have no levels')
        return found

    def add_active_adapter(self, adapter: Any, weight: float = 1.0) -> None:
        """Let runs with these options use an adapter, with others if it is not the first. adapter: a LoraAdapter, or
        its name in the session's option `adapters`; weight: a factor of what it adds (not in onnxruntime). Errors:
        InvalidInput"""
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise InvalidInput(f"the weight of an adapter cannot be {weight!r}", hint="give a number")
        if not isinstance(adapter, str):
            if not hasattr(adapter, "loaded"):
                text = f"an adapter cannot be of type {type(adapter).__name__}"
                raise InvalidInput(text, hint="pyruntime.LoraAdapter")
            adapter.loaded()
        self._active.append((adapter, float(weight)))

    def clear_active_adapters(self) -> None:
        """Let later runs use none (not in onnxruntime)."""
        self._active.clear()


def check_run_options(options: Any) -> None:
    if options is not None and not isinstance(options, RunOptions):
        raise InvalidInput(
            f"run_options cannot be of type {type(options).__name__}", hint="pyruntime.RunOptions or None"
        )
