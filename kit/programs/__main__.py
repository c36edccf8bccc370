"""python -m kit.programs: runs transformers.js, each task, provider and precision, with this package and with
onnxruntime-web and the same options. Prints a line a case: the seconds of both, and whether they agree. Slow on an
emulated GPU.

With --generate: a text of that many tokens on the GPU beside WebAssembly, in each precision. Prints how many tokens
both choose, the largest difference of a logit as a part of the largest logit, at how many tokens WebGPU objects are
made or bytes copied, and what another such text leaves in the page's JavaScript heap. Exits with 1 if something
disagrees.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from kit.chromium import build, launch, serve
from kit.programs import folders, generation, transformers


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kit.programs", description=__doc__)
    parser.add_argument("filter", nargs="?", default="", help="a part of the cases' names, such as generation-webgpu")
    parser.add_argument("--generate", type=int, metavar="TOKENS")
    args = parser.parse_args()
    build()
    folders.write()
    return generate(args.generate, args.filter) if args.generate else matrix(args.filter)


def generate(count: int, only: str) -> int:
    wrong = 0
    with serve() as server, launch() as browser:
        for precision, bound in generation.BOUNDS.items():
            if only not in precision:
                continue
            page = browser.new_context().new_page()
            page.set_default_timeout(3_600_000)
            page.add_init_script(generation.COUNTER.read_text())
            transformers.open_page(page, server.url, "ours")
            found = generation.write(page, precision, count)
            wrong += found.difference > bound or (precision == "fp32" and found.same < count)
            made = {name: len(at) for name, at in found.made.items() if at}
            print(
                f"{precision:6} {found.same} of {count} tokens alike, logits within {found.difference:.1e} ({bound})\n"
                f"       tokens that make or copy: {made}; {found.buffers:+} buffers, heap {found.heap / 1e3:+.0f} kB"
            )
            page.context.close()
    return int(bool(wrong))


def matrix(only: str) -> int:
    cases = [case for case in transformers.MATRIX if only in "-".join(case)]
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
    sys.exit(main())
