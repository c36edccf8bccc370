"""Options of a run, and their check."""

from __future__ import annotations

from typing import Any

from pyruntime.errors import InvalidInput, NotSupported


class RunOptions:
    """Options of a run, the third argument of `run`.

    logid, log_severity_level: the name of its messages, and the least severity of those that are logged
    terminate: another thread sets it to True to end the runs with these options, within a kernel, by Terminated. Later
        runs end, too, until it is False.
    Without effect: `log_verbosity_level`, config entries, `only_execute_path_to_fetches` (results are the same)
    """

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


def check_run_options(options: Any) -> None:
    if options is not None and not isinstance(options, RunOptions):
        raise InvalidInput(
            f"run_options cannot be of type {type(options).__name__}", hint="pyruntime.RunOptions or None"
        )
