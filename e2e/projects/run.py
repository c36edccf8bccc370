"""Installs a project, starts it, and reads the sums of its page and of its worker."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from playwright.sync_api import Browser

from e2e.projects.table import PEER, Project
from kit import small_models
from kit.chromium import ROOT
from pyruntime.cli.serve import Server

SOURCES = Path(__file__).parent / "sources"
BUILD = ROOT / "build/projects"
LIMIT = 150  # seconds: development servers compile on the first request
ENVIRONMENT = {
    **os.environ, "NODE_OPTIONS": "--experimental-vm-modules", "NO_COLOR": "1", "CI": "1",
    "NEXT_TELEMETRY_DISABLED": "1", "ASTRO_TELEMETRY_DISABLED": "1", "NG_CLI_ANALYTICS": "false",
}  # fmt: skip


# place -> library -> the sums as a text, or an error
Sums = dict[str, dict[str, str]]


class Failure(Exception):
    """A command failed; the message is the end of its output."""


def packed() -> Path:
    """The package as `npm pack` packs it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    command = ["npm", "pack", "--silent", "--pack-destination", str(BUILD)]
    name = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()[-1]
    return BUILD / name


def prepare(project: Project, package: Path) -> Path:
    """The project's folder, with its files and packages."""
    folder = BUILD / project.name
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in ("node_modules", "installed"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for source, target in ("common", project.common), (project.source, "."):
        shutil.copytree(SOURCES / source, folder / target, dirs_exist_ok=True)
    if project.static:
        (folder / project.static).mkdir(exist_ok=True)
        shutil.copy(ROOT / "demo/digits/digits.onnx", folder / project.static)
    model = list(small_models.add().SerializeToString())
    (folder / project.common / "model.js").write_text(f"export const MODEL = Uint8Array.from({model});\n")
    versions = dict(spec.rsplit("@", 1) for spec in (*project.packages, PEER))
    kind = "module" if project.module else "commonjs"
    about = {
        "private": True, "type": kind, "dependencies": {**versions, "pyruntime": f"file:{package}"},
        "@parcel/resolver-default": {"packageExports": True},  # for onnxruntime-web/wasm
    }  # fmt: skip
    text = json.dumps(about, indent=2)
    (folder / "package.json").write_text(text)
    stamp = hashlib.sha256(text.encode() + package.read_bytes()).hexdigest()
    if (folder / "installed").exists() and (folder / "installed").read_text() == stamp:
        return folder
    shutil.rmtree(folder / "node_modules/pyruntime", ignore_errors=True)
    command(folder, "npm install --no-audit --no-fund --no-package-lock --loglevel=error")
    (folder / "installed").write_text(stamp)
    return folder


def words(line: str, **values: object) -> list[str]:
    first, *rest = line.format(**values).split()
    return [first if first == "npm" else f"node_modules/.bin/{first}", *rest]


def command(folder: Path, line: str) -> str:
    done = subprocess.run(
        words(line), cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, timeout=1200,
    )  # fmt: skip
    if done.returncode:
        raise Failure(f"{line}: {done.stdout[-1500:]}")
    return done.stdout


def build(project: Project, folder: Path) -> None:
    out = folder / project.built
    for source, target in project.beside:
        shutil.copytree(folder / "node_modules" / source, out / target, dirs_exist_ok=True)
    command(folder, project.build)
    if not (out / "index.html").exists() and not project.start:
        shutil.copy(folder / "index.html", out)


@contextmanager
def serving(project: Project, folder: Path, line: str) -> Iterator[str]:
    """The address of a server: of the command, or of our own for what was built."""
    if not line:
        with Server({"/": folder / project.built}) as site:
            yield f"{site.url}/index.html"
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            words(line, port=port), cwd=folder, env=ENVIRONMENT, stdout=output, stderr=output, stdin=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    try:
        end = time.monotonic() + LIMIT
        while not listens(port):
            if server.poll() is not None or time.monotonic() > end:
                raise Failure(f"{line}: {log.read_text()[-1500:]}")
            time.sleep(0.2)
        yield f"http://localhost:{port}/"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def listens(port: int) -> bool:
    for host in ("127.0.0.1", "::1"):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            if probe.connect_ex((host, port)) == 0:
                return True
    return False


def visit(browser: Browser, address: str, has_component: bool) -> Sums:
    """What the page and its worker find, after its component, if it has one, shows a digit."""
    page = browser.new_context().new_page()
    lines: list[str] = []
    page.on("console", lambda message: lines.append(message.text))
    page.on("pageerror", lambda error: lines.append(str(error)))
    try:
        page.goto(address, timeout=LIMIT * 1000)
        if has_component:
            page.get_by_text("This is a ").wait_for(timeout=LIMIT * 1000)
        page.wait_for_function("document.documentElement.dataset.sums", timeout=LIMIT * 1000)
        return json.loads(page.evaluate("document.documentElement.dataset.sums"))
    except Exception as error:
        raise Failure("\n".join([str(error).split("\n")[0], *lines[-5:]])) from None
    finally:
        page.context.close()
