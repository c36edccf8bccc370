"""The second page starts from the memory of the first: web/worker/interpreter_snapshot.js."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext

from e2e.conftest import Server, Tab
from e2e.test_loading import Y

CREATE = """
  const session = await ort.InferenceSession.create('/models/affine.onnx');
  const x = new ort.Tensor('float32', Float32Array.from([0, 1, 2, 3, 4, 5, 6, 7]), [2, 4]);
  const { y } = await session.run({ x });
  await session.release();
  return Array.from(y.data);
"""
# Python draws the seed of its hashes when it starts, so equal ones tell of one start.
SEED = "return ort.python(`hash('the seed of this interpreter')`)"
KEPT = """
  const cache = await caches.open('pyruntime');
  for (let i = 0; i < 300 && !(await cache.keys()).length; i++) await new Promise((done) => setTimeout(done, 100));
  return (await cache.keys()).map((request) => request.url);
"""


class Profile:
    """A browser profile, and pages in it one after another."""

    def __init__(self, context: BrowserContext, server: Server) -> None:
        self.context, self.server = context, server

    def tab(self) -> Tab:
        tab = Tab(self.context.new_page(), self.server.url)
        tab.open("/esm.html")
        return tab


@pytest.fixture
def profile(request: pytest.FixtureRequest, browser: Browser, servers: dict[str, Server]) -> Iterator[Profile]:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    yield Profile(context, servers[getattr(request, "param", "isolated")])
    context.close()


def first(profile: Profile) -> object:
    """A first page, closed again once its memory is kept: the seed of its interpreter."""
    tab = profile.tab()
    np.testing.assert_allclose(tab.run(CREATE), Y.ravel(), rtol=1e-5)
    seed = tab.run(SEED)
    kept = tab.run(KEPT)
    assert isinstance(kept, list) and len(kept) == 1 and "/dist/engine.zip?snapshot=" in kept[0]
    tab.page.close()
    tab.check()
    return seed


@pytest.mark.parametrize("profile", ["isolated", "plain", "strict"], indirect=True)
def test_second_page_starts_from_the_first_ones_memory(profile: Profile) -> None:
    seed = first(profile)
    tab = profile.tab()
    np.testing.assert_allclose(tab.run(CREATE), Y.ravel(), rtol=1e-5)
    assert tab.run(SEED) == seed
    late = """
      import sys, js
      before = 'pyruntime.providers.webgpu.adapter' in sys.modules
      import pyruntime.providers.webgpu.adapter, colorsys
      [before, js.Array.isArray(js.Array.new())]
    """
    assert tab.run("return ort.python(arg)", late) == [False, True]
    tab.check()


def test_pages_do_not_draw_the_same_numbers(profile: Profile) -> None:
    first(profile)
    draw = "return ort.python('import random; random.random()')"
    drawn = [profile.tab().run(draw) for _ in range(2)]
    assert drawn[0] != drawn[1]


# what another page may have left under the name of ours
BROKEN = {
    "nothing": "new Uint8Array(0)",
    "too short": "(await whole()).subarray(0, 1 << 20)",
    "of another Pyodide": "changed(await whole())",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_broken_snapshot_is_replaced(profile: Profile, content: str) -> None:
    seed = first(profile)
    tab = profile.tab()
    tab.run(f"""
      const cache = await caches.open('pyruntime');
      const [name] = await cache.keys();
      const whole = async () => new Uint8Array(await (await cache.match(name)).arrayBuffer());
      const changed = (bytes) => {{
        const start = 8 + 4 * new Uint32Array(bytes.buffer)[1];
        bytes[start + 16] ^= 1;
        return bytes;
      }};
      await cache.put(name, new Response({content}));
    """)
    np.testing.assert_allclose(tab.run(CREATE), Y.ravel(), rtol=1e-5)
    mine = tab.run(SEED)
    assert mine != seed
    assert len(tab.run(KEPT)) == 1  # type: ignore[arg-type]
    tab.page.close()
    again = profile.tab()
    assert again.run(SEED) == mine
    again.check()
    tab.check()


@pytest.mark.parametrize("length", [4, 4092, 4096, 4100, 8192, 8196, 3 * 4096 - 4])
def test_packing(page: Tab, length: int) -> None:
    """Pages of zeros at either end and in between, and a last page that is not whole, come back as they were."""
    same = page.run(
        """
        const { pack, unpack } = await import('/web/worker/interpreter_snapshot.js');
        const compare = (bytes) => {
          const back = unpack(pack(bytes));
          return back.length === bytes.length && back.every((byte, i) => byte === bytes[i]);
        };
        const results = [];
        for (const marks of [[], [0], [arg - 1], [0, arg - 1], [Math.min(arg - 1, 4096)]]) {
          const bytes = new Uint8Array(arg);
          for (const mark of marks) bytes[mark] = 7;
          results.push(compare(bytes));
        }
        return results;
        """,
        length,
    )
    assert same == [True] * 5
