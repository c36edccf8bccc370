"""Translates pyruntime/runtime/, the part of the runtime that both executors share, to JavaScript (web/runtime/).

docs/design/runtime.md describes the subset of Python and why there is a translator."""
