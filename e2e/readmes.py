"""Runs the commands of the examples' READMEs as they are written, in a fresh clone.

A README has blocks of commands, and of what they print or what their page says. If it says "Open the address", the last
command of each block is a server, which prints its address."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, expect

from kit.chromium import ROOT

PACKAGE = "make -C ../.. package"
ADDRESS = re.compile(r"http://(?:localhost|127\.0\.0\.1):\d+/?")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
LIMIT = 300  # seconds that a command may take
# What `make projects` follows, because they install hundreds of megabytes
LARGE = ("next", "notebook", "flower", "serving", "ray", "spark", "dask", "beam")


@dataclass(frozen=True)
class Readme:
    """blocks: the commands; says: a pattern of what they show ("…" stands for anything)."""

    name: str
    blocks: list[list[str]]
    says: re.Pattern[str]
    serves: bool


def read(name: str) -> Readme:
    text = (ROOT / "examples" / name / "README.md").read_text()
    blocks = re.findall(r"^```(console|text)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (shown,) = (block.strip() for kind, block in blocks if kind == "text")
    commands = [[without_comment(line) for line in block.splitlines()] for kind, block in blocks if kind == "console"]
    says = re.compile(".*".join(map(re.escape, shown.split("…"))), re.DOTALL)
    return Readme(name, commands, says, "Open the address" in text)


def without_comment(line: str) -> str:
    return re.sub(r"\s+# .*", "", line)


def clone(folder: Path) -> Path:
    """The tree as a fresh clone would have it after `make package`, which made what is linked."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).exists():  # a file may be deleted and not yet committed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    (folder / "build").mkdir()
    for name in (".venv", "dist", "build/package"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run(command: str, folder: Path) -> str:
    """The output of a command."""
    done = subprocess.run(
        command, shell=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@contextmanager
def serving(command: str, folder: Path) -> Iterator[str]:
    """The address that the command prints."""
    log = folder / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command, shell=True, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        end = time.monotonic() + LIMIT
        while not (found := ADDRESS.search(COLOUR.sub("", log.read_text()))):
            assert server.poll() is None and time.monotonic() < end, f"{command}\n{log.read_text()}"
            time.sleep(0.1)
        yield found[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def follow(name: str, checkout: Path, page: Page) -> None:
    """Runs all commands except PACKAGE, which ran before, and compares what they show."""
    readme, folder = read(name), checkout / "examples" / name
    for commands in readme.blocks:
        assert len(commands) <= 3
        *before, last = [command for command in commands if command != PACKAGE]
        for command in before:
            run(command, folder)
        if not readme.serves:
            assert readme.says.fullmatch(run(last, folder).strip())
            continue
        with serving(last, folder) as address:
            page.goto(address, timeout=LIMIT * 1000)
            expect(page.locator("body")).to_have_text(readme.says, timeout=60_000)
