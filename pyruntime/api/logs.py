"""Log messages of sessions, through Python's logging: the logger is "pyruntime", or "pyruntime.LOGID".

Severities are onnxruntime's: 0 verbose, 1 info, 2 warning (the default), 3 error, 4 fatal.
"""

from __future__ import annotations

import logging

from pyruntime.errors import InvalidInput

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
VERBOSE, INFO, WARNING, ERROR = range(4)
_default = {"severity": WARNING, "verbosity": 0}
_printed: set[str] = set()


def set_default_logger_severity(level: int) -> None:
    """Set the lowest severity to log, for sessions and runs that set none. Errors: InvalidInput unless it is 0 to 4"""
    if level not in range(len(_LEVELS)):
        raise InvalidInput(f"unknown severity {level!r}", hint="0 verbose, 1 info, 2 warning, 3 error, 4 fatal")
    _default["severity"] = level


def set_default_logger_verbosity(level: int) -> None:
    """Without effect: verbose messages have no levels."""
    _default["verbosity"] = level


def warn_once(message: str, *, least: int, logid: str = "") -> None:
    """Log a warning, unless this process has logged it before."""
    if message not in _printed and least <= WARNING:
        _printed.add(message)
        log(WARNING, message, least=least, logid=logid)


def least(severity: int) -> int:
    """Return the severity, or the default for -1."""
    return _default["severity"] if severity < 0 else severity


def log(severity: int, message: str, *, least: int, logid: str = "") -> None:
    """Log a message if its severity is at least `least`. If the program has not configured logging, messages below
    warnings go to standard error, because Python drops them."""
    if severity < least:
        return
    logger = logging.getLogger(f"pyruntime.{logid}" if logid else "pyruntime")
    if severity < WARNING and not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s [%(levelname)s:%(name)s] %(message)s"))
        logging.getLogger("pyruntime").addHandler(handler)
    level = _LEVELS[severity]
    record = logger.makeRecord(logger.name, level, "pyruntime", 0, message, (), None)
    logger.handle(record)


__all__ = [
    "ERROR",
    "INFO",
    "VERBOSE",
    "WARNING",
    "least",
    "log",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "warn_once",
]
