"""Runs the package in projects of bundlers, frameworks and test runners, beside onnxruntime-web.

Each project is installed from npm's registry into build/projects, started in development and as a build, and opened in
Chromium. Its page and its worker compute a sum with both libraries. Prints a line for each; exits with 1 if one of
ours is wrong."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser

from e2e import readmes
from e2e.projects.run import Failure, Sums, build, command, packed, prepare, serving, visit
from e2e.projects.table import PROJECTS, Project
from kit import chromium

RIGHT = "2,3,4,5,6,7"
LIBRARIES = ("pyruntime", "onnxruntime-web")


def phases(project: Project, browser: Browser, folder: Path) -> Iterator[tuple[str, Sums | Failure]]:
    """What each way to start the project finds."""
    for phase in ("test", "dev", "build"):
        if not getattr(project, phase):
            continue
        try:
            yield phase, tested(project, folder) if phase == "test" else visited(project, browser, folder, phase)
        except Failure as failure:
            yield phase, failure


def tested(project: Project, folder: Path) -> Sums:
    command(folder, project.test)
    return {"tests": dict.fromkeys(LIBRARIES, RIGHT)}


def visited(project: Project, browser: Browser, folder: Path, phase: str) -> Sums:
    if phase == "build" or project.beside:
        build(project, folder)
    with serving(project, folder, project.dev if phase == "dev" else project.start) as address:
        return visit(browser, address, bool(project.static))


def shown(found: Sums | Failure) -> tuple[list[str], bool]:
    """A text for each library, and whether ours is right everywhere."""
    if isinstance(found, Failure):
        return [f"failed: {found}", ""], False
    texts = []
    for library in LIBRARIES:
        sums = {place: values[library] for place, values in found.items()}
        texts.append(", ".join(f"{place} {'ok' if text == RIGHT else text[:200]}" for place, text in sums.items()))
    return texts, all(values["pyruntime"] == RIGHT for values in found.values())


def example(name: str, browser: Browser) -> tuple[str, bool]:
    """A text, and whether the commands of its README do what it says."""
    subprocess.run(["make", "--silent", "package"], cwd=chromium.ROOT, check=True, stdout=subprocess.DEVNULL)
    page = browser.new_page()
    with tempfile.TemporaryDirectory() as folder:
        try:
            readmes.follow(name, readmes.clone(Path(folder)), page)
        except AssertionError as error:
            return f"failed: {error}", False
        finally:
            page.close()
    return "ok", True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.projects", description=__doc__)
    names = [*(project.name for project in PROJECTS), *(f"examples/{name}" for name in readmes.LARGE)]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"projects to run: {', '.join(names)} (default: all)")
    chosen = parser.parse_args().names
    if unknown := set(chosen) - set(names):
        parser.error(f"there is no project {', '.join(sorted(unknown))}")
    if not (chromium.ROOT / "dist/ort.mjs").exists():
        chromium.build()
    package = packed()
    failed = 0
    row = "{:14}{:7}{:>4}  {:28}{}".format
    print(row("project", "", "s", *LIBRARIES))
    with chromium.launch() as browser:
        for project in PROJECTS:
            if chosen and project.name not in chosen:
                continue
            try:
                folder = prepare(project, package)
            except Failure as failure:
                print(row(project.name, "", "", f"not installed: {failure}", ""))
                failed += 1
                continue
            start = time.monotonic()
            for phase, found in phases(project, browser, folder):
                texts, right = shown(found)
                failed += not right
                print(row(project.name, phase, f"{time.monotonic() - start:.0f}", *texts), flush=True)
                start = time.monotonic()
        for name in readmes.LARGE:
            if not chosen or f"examples/{name}" in chosen:
                text, right = example(name, browser)
                failed += not right
                print(row(f"examples/{name}", "README", "", text, ""))
    print(f"{failed} failed" if failed else "all right")
    return min(failed, 1)


raise SystemExit(main())
