"""Options of runs."""

from __future__ import annotations

from typing import Any

from pyruntime.errors import InvalidInput, NotSupported


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


def check_run_options(options: Any) -> None:
    if options is not None and not isinstance(options, RunOptions):
        raise InvalidInput(
            f"run_options cannot be of type {type(options).__name__}", hint="pyruntime.RunOptions or None"
        )


__all__ = ["RunOptions", "check_run_options"]
