"""Describes the machine of a measurement: enough to compare with runs on the same machine, without its name."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines()[:30] if ":" in line)
        found = {key.strip(): value.strip() for key, value in fields.items()}
        keys = ("cpu family", "model")
        detail = " ".join(f"{key} {found[key]}" for key in keys if key in found)
        return f"{found.get('model name', platform.machine())} ({detail})"
    return platform.processor() or platform.machine()


def commit() -> str:
    """Return the short hash of the checkout, with + if files differ from it."""

    def git(*args: str) -> str:
        return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + "+" * bool(git("status", "--porcelain", "--untracked-files=no"))


def load() -> float:
    """Return the load of the last minute, in processes."""
    return round(os.getloadavg()[0], 1)


def identity(chromium: str) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    where = {"processor": processor(), "cores": os.cpu_count(), "system": platform.system()}
    return {"date": now, "commit": commit(), "machine": where, "chromium": chromium, "load": load()}


def describe(chromium: str) -> str:
    return f"{processor()}, {os.cpu_count()} cores, load {load()}, Chromium {chromium}, {commit()}"
