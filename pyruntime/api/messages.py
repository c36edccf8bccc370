"""The log messages of one session."""

from __future__ import annotations

from pyruntime.api import logs
from pyruntime.api.options import SessionOptions
from pyruntime.session.run_options import RunOptions


class SessionMessages:
    """The messages of one session. It has no reference to the session, so that reference counting alone frees the
    session."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options

    def log(self, severity: int, message: str, run: RunOptions | None = None) -> None:
        logid = run.logid if run is not None and run.logid else self._options.logid
        logs.log(severity, message, least=self.least(run), logid=logid)

    def least(self, run: RunOptions | None) -> int:
        """The lowest severity of messages to log."""
        own = self._options.log_severity_level
        return logs.least(own if run is None or run.log_severity_level < 0 else run.log_severity_level)

    def warn(self, text: str) -> None:
        self.log(logs.WARNING, text)

    def warn_once(self, text: str, run: RunOptions | None = None) -> None:
        logs.warn_once(text, least=self.least(run), logid=self._options.logid)
