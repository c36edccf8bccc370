"""What lies in Cache Storage is not what it is called: damaged, of another model, of another version of the engine.
Pages give right results, and what was wrong is written anew."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import Route

from e2e.conftest import Profile
from kit import small_models as models

RUN = """
  const session = await ort.InferenceSession.create(arg);
  const { y } = await session.run({ x: new ort.Tensor('float32', Float32Array.from([0, 1, 2, 3]), [1, 4]) });
  return Array.from(y.data);
"""
X = np.arange(4, dtype=np.float32)
PRODUCT = X @ models.WEIGHT + models.BIAS
RIGHT = {"/models/affine.onnx": np.maximum(PRODUCT, 0), "/models/negated.onnx": -PRODUCT}
# how many entries are as they were written, once that many are
WHOLE = """
  const { unseal } = await import('/web/storage/sealed_cache.js');
  const whole = async () => {
    const cache = await caches.open('pyruntime-programs');
    let count = 0;
    for (const { url } of await cache.keys()) count += await unseal(await cache.match(url), url) ? 1 : 0;
    return count;
  };
  for (let i = 0; i < 100 && (await whole()) < arg; i++) await new Promise((done) => setTimeout(done, 200));
  return whole();
"""
ENTRIES = 4  # of two versions: two Programs each
POISON = """
  const cache = await caches.open('pyruntime-programs');
  const keys = await cache.keys();
  const found = await Promise.all(keys.map(async (key) => {
    const response = await cache.match(key);
    return { etag: response.headers.get('etag'), bytes: new Uint8Array(await response.arrayBuffer()) };
  }));
  for (const [i, key] of keys.entries()) {
    const { etag, bytes } = arg.change ? found[i] : found[(i + arg.turn) % found.length];
    const half = bytes.length >> 1;
    if (arg.change === 'byte') bytes[half] ^= 1;
    const body = arg.change === 'cut' ? bytes.subarray(0, half) : bytes;
    await cache.put(key, new Response(body, { headers: { etag } }));
  }
"""
DAMAGES = {
    "cut off": {"change": "cut"},
    "one byte": {"change": "byte"},
    "each that of the next": {"turn": 1},
}


def other_version(route: Route) -> None:
    """The worker of an engine whose sources have changed; the image of memory takes it for its own."""
    response = route.fetch()
    (build,) = re.findall('"[0-9a-f]{16}"', response.text())
    route.fulfill(response=response, body=response.text().replace(build, f'{build[:9]}00000000"'))


def visit(profile: Profile, entries: int) -> None:
    """A page that runs both models; it leaves so many good entries at least."""
    tab = profile.tab()
    for url, right in RIGHT.items():
        np.testing.assert_allclose(tab.run(RUN, url), right, rtol=1e-5)
    assert tab.run(WHOLE, entries) >= entries  # type: ignore[operator]
    tab.page.close()
    tab.check()


@pytest.mark.parametrize("damage", DAMAGES)
def test_entries_that_are_not_what_they_are_called(profile: Profile, damage: str) -> None:
    negated = models.affine()
    (relu,) = [node for node in negated.graph.node if node.op_type == "Relu"]
    relu.op_type = "Neg"
    profile.context.route("**/negated.onnx", lambda route: route.fulfill(body=negated.SerializeToString()))
    profile.context.route("**/worker.mjs", other_version)
    visit(profile, ENTRIES // 2)
    profile.context.unroute("**/worker.mjs")
    visit(profile, ENTRIES)
    tab = profile.tab()
    tab.run(POISON, DAMAGES[damage])
    tab.page.close()
    profile.context.route("**/worker.mjs", other_version)
    visit(profile, ENTRIES // 2)
    profile.context.unroute("**/worker.mjs")
    visit(profile, ENTRIES)
