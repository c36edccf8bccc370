"""`python -m kit.programs [FILTER]`: runs transformers.js, each task, provider and precision, with this package and
with onnxruntime-web and the same options. Prints a line a case: the seconds of both, and whether they agree.

FILTER: a part of the names, such as generation-webgpu. Exit status 1 if some disagree. Slow on an emulated GPU.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from kit.chromium import build, launch, serve
from kit.programs import folders, transformers


def main(only: str = "") -> int:
    cases = [case for case in transformers.MATRIX if only in "-".join(case)]
    build()
    folders.write()
    wrong = 0
    with serve() as server, launch() as browser:
        pages = {package: browser.new_context().new_page() for package in ("ours", "theirs")}
        for package, page in pages.items():
            page.set_default_timeout(600_000)
            transformers.open_page(page, server.url, package)
        for case in cases:
            told: list[Any] = []
            seconds: list[float] = []
            for page in pages.values():
                start = time.perf_counter()
                told.append(transformers.result(page, *case))
                seconds.append(time.perf_counter() - start)
            problem = difference(case, *told)
            wrong += bool(problem)
            print(
                f"{'-'.join(case):24} ours {seconds[0]:6.1f} s  theirs {seconds[1]:6.1f} s  {problem or 'same'}",
                flush=True,
            )
    print(f"transformers.js: {len(cases) - wrong} of {len(cases)} cases as with onnxruntime-web")
    return bool(wrong)


def difference(case: tuple[str, str, str], found: Any, expected: Any) -> str:
    try:
        transformers.assert_as_original(*case, found, expected)
    except AssertionError as error:
        return str(error) or "differs"
    return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
