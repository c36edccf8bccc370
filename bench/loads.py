"""python -m bench loads: checks that two-thread sessions in fresh pages of Firefox end, with a result or an error.

Each load opens the page again, creates a session on two threads, and runs it. Exits with 1 if one gave no answer in
time, a wrong answer or an error.
"""

from __future__ import annotations

import argparse
import sys

from kit import browsers, chromium
from kit import small_models as models

LOAD = """async (limit) => {
  const late = new Promise((resolve) => setTimeout(resolve, 1000 * limit, 'no answer'));
  const load = async () => {
    const session = await ort.InferenceSession.create('/models/softmax.onnx', { intraOpNumThreads: 2 });
    const x = new ort.Tensor('float32', new Float32Array(512 * 1024), [512, 1024]);
    const { y } = await session.run({ x });
    const { threads } = await ort.stats();
    const right = y.data.every((value) => Math.abs(value - 1 / 512) < 1e-6);
    return right ? `${threads + 1} threads` : 'wrong';
  };
  return Promise.race([load().catch((error) => error.type ?? error.name), late]);
}"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench loads", description=__doc__)
    parser.add_argument("--loads", type=int, default=200, help="default 200")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a load may take (default 60)")
    args = parser.parse_args(argv)
    chromium.build()
    models.write(chromium.ROOT / "build" / "models")
    ends: dict[str, int] = {}
    with chromium.serve() as server, browsers.firefox() as page:
        for n in range(args.loads):
            if n and n % 20 == 0:
                print(f"{n} of {args.loads}", file=sys.stderr, flush=True)
            page.goto(f"{server.url}/esm.html")
            page.wait_for_function("globalThis.ort")
            end = page.evaluate(LOAD, args.limit)
            ends[end] = ends.get(end, 0) + 1
        told = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
        print(f"{page.version}: {args.loads} two-thread loads, {ends.get('no answer', 0)} without an end: {told}")
    return 1 if ends.keys() - {"2 threads", "1 threads"} else 0
