"""Browsers that Playwright does not drive: installed ones, Firefox and WebKitGTK, and Chromium with tabs that can be
hidden. Their pages have the methods of Playwright's that kit.chromium.Engine calls."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from kit.chromium import ARGS, ROOT


class Page(Protocol):
    """version: of the browser. `evaluate` calls a JavaScript function, which may be async, with an argument."""

    version: str

    def goto(self, url: str) -> object: ...
    def wait_for_function(self, expression: str) -> object: ...
    def evaluate(self, function: str, arg: object = None) -> Any: ...


def firefox_path() -> str | None:
    return shutil.which("firefox-esr") or shutil.which("firefox")


def webkit_path() -> Path | None:
    """The path of the browser that comes with WebKitGTK's driver."""
    if not shutil.which("WebKitWebDriver") or not shutil.which("Xvfb"):
        return None
    return next(iter(sorted(Path("/usr").glob("lib*/**/webkit2gtk-*/MiniBrowser"))), None)


class PuppeteerPage:
    """A page driven by Puppeteer, which speaks WebDriver BiDi with Firefox and needs no other driver."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.version: str = self.answer()

    def answer(self) -> Any:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise RuntimeError("the browser ended")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer.get("result")

    def ask(self, *request: object) -> Any:
        assert self.process.stdin
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.answer()

    def goto(self, url: str) -> object:
        return self.ask("goto", url)

    def wait_for_function(self, expression: str) -> object:
        return self.ask("wait", expression)

    def evaluate(self, function: str, arg: object = None) -> Any:
        return self.ask("evaluate", function, arg)

    def hide(self) -> None:
        """Hides the page, as if the user opened another tab."""
        self.ask("hide")


@contextmanager
def by_puppeteer(browser: str, path: str, *arguments: str) -> Iterator[PuppeteerPage]:
    """browser: "firefox" or "chrome"."""
    command = ["node", "kit/puppeteer.mjs", browser, path, *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield PuppeteerPage(process)
        finally:
            assert process.stdin
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def firefox() -> AbstractContextManager[PuppeteerPage]:
    return by_puppeteer("firefox", str(firefox_path()))


def chromium(path: str) -> AbstractContextManager[PuppeteerPage]:
    """Chromium with pages that can be hidden; Playwright's are always visible."""
    return by_puppeteer("chrome", path, *ARGS)


class WebkitPage:
    """A page driven by Selenium. driver: selenium.webdriver.WebKitGTK."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.version = f"WebKitGTK {driver.capabilities['browserVersion']}"

    def goto(self, url: str) -> object:
        return self.driver.get(url)

    def wait_for_function(self, expression: str) -> object:
        return self.evaluate(f"async () => {{ while (!({expression})) await new Promise((r) => setTimeout(r, 50)); }}")

    def evaluate(self, function: str, arg: object = None) -> Any:
        script = f"""const [arg, done] = arguments;
          const fail = (error) => done({{ error: String(error) }});
          (async () => ({function})(arg))().then((result) => done({{ result }}), fail);"""
        answer = self.driver.execute_async_script(script, arg)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer.get("result")


@contextmanager
def display() -> Iterator[str]:
    """The name of an X display without a screen."""
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-nolisten", "tcp"], pass_fds=[write], stderr=subprocess.DEVNULL
    )
    os.close(write)
    try:
        with os.fdopen(read) as number:
            yield f":{number.readline().strip()}"
    finally:
        server.terminate()
        server.wait()


@contextmanager
def webkit(settings: Mapping[str, str] | None = None) -> Iterator[WebkitPage]:
    """settings: environment variables. `JSC_useSharedArrayBuffer=1` gives isolated pages shared memory."""
    from selenium.webdriver import WebKitGTK, WebKitGTKOptions
    from selenium.webdriver.webkitgtk.service import Service

    options = WebKitGTKOptions()
    options.binary_location = str(webkit_path())
    options.add_argument("--automation")
    with display() as screen:
        environment = {**os.environ, "DISPLAY": screen, "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1"}
        service = Service(str(shutil.which("WebKitWebDriver")), env={**environment, **(settings or {})})
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of Selenium by Selenium
            driver = WebKitGTK(options=options, service=service)
        try:
            driver.set_script_timeout(600)
            yield WebkitPage(driver)
        finally:
            driver.quit()
