"""Rules of sessions: which states follow which (docs/design/sessions.md), and how many Programs a session keeps."""

from __future__ import annotations

from collections.abc import Mapping

# running: work is under way: opening the session, a run, a profile; ready: the session accepts work; recovering: the
# session makes its executors again after a fault of the GPU; failed: no device is left, the next run looks for one;
# released: for good, the memory is freed
TRANSITIONS: Mapping[str, list[str]] = {
    "running": ["ready", "recovering", "failed", "released"],
    "ready": ["running", "released"],
    "recovering": ["running", "failed", "released"],
    "failed": ["running", "released"],
    "released": [],
}

MAX_PROGRAMS = 16  # of a model, for different values; a further one replaces the oldest
