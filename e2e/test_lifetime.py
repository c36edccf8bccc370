"""Many sessions, overlapping runs, release: results stay right and memory does not grow."""

from __future__ import annotations

from collections.abc import Callable

from e2e.conftest import Tab

PREPARE = """
  const tensor = (k) => new ort.Tensor('float32', new Float32Array(6).fill(k), [2, 3]);
  const open = (name = 'add') => ort.InferenceSession.create(`/models/${name}.onnx`);
"""


def test_two_sessions_at_once(page: Tab) -> None:
    found = page.run(
        PREPARE
        + """
        const [add, affine] = await Promise.all([open(), open('affine')]);
        const x = new ort.Tensor('float32', new Float32Array(4), [1, 4]);
        const [one, two] = await Promise.all([add.run({ a: tensor(2), b: tensor(3) }), affine.run({ x })]);
        await add.release();
        const three = await affine.run({ x });
        return [Array.from(one.c.data), Array.from(two.y.data), Array.from(three.y.data)];
        """
    )
    assert found == [[5] * 6, [0.5, 0, 0.125], [0.5, 0, 0.125]]


def test_ten_overlapping_runs(page: Tab) -> None:
    """Ten in flight, feeds changed right after each call: every run saw its own."""
    found = page.run(
        PREPARE
        + """
        const session = await open();
        const a = tensor(0);
        const runs = [];
        for (let k = 0; k < 10; k++) {
          a.data.fill(k);
          runs.push(session.run({ a, b: tensor(100 * k) }));
        }
        return (await Promise.all(runs)).map(({ c, d }) => [c.data[0], c.data[5], d.data[3]]);
        """
    )
    assert found == [[101 * k, 101 * k, -99 * k] for k in range(10)]


def test_feeds_are_not_detached(page: Tab) -> None:
    found = page.run(
        PREPARE
        + """
        const session = await open();
        const a = tensor(1), b = tensor(2);
        await session.run({ a, b });
        const { c } = await session.run({ a, b }, ['c']);
        return [a.data.length, b.data[0], c.data[0]];
        """
    )
    assert found == [6, 2, 3]


def test_fetches(page: Tab) -> None:
    """Some outputs only; into tensors of the caller, shared ones too."""
    found = page.run(
        PREPARE
        + """
        const session = await open();
        const feeds = { a: tensor(5), b: tensor(1) };
        const only = Object.keys(await session.run(feeds, ['d']));
        const mine = tensor(0);
        const result = await session.run(feeds, { c: mine });
        const kinds = [result.c === mine && mine.data[4] === 6];
        if (globalThis.crossOriginIsolated) {
          const shared = new ort.Tensor('float32', new Float32Array(new SharedArrayBuffer(24)), [2, 3]);
          await session.run(feeds, { c: shared });
          kinds.push(shared.data[4] === 6);
        }
        return [only, kinds.every(Boolean)];
        """
    )
    assert found == [["d"], True]


def test_tensors_that_cannot_hold_an_output(page: Tab) -> None:
    """Of other dims or another type: refused by name, whether there is room or not; the session stays usable."""
    found = page.run(
        PREPARE
        + """
        const session = await open();
        const feeds = { a: tensor(5), b: tensor(1) };
        const memory = globalThis.crossOriginIsolated ? SharedArrayBuffer : ArrayBuffer;
        const targets = [
          new ort.Tensor('float32', new Float32Array(5), [1, 5]),
          new ort.Tensor('float32', new Float32Array(9), [3, 3]),
          new ort.Tensor('float32', new Float32Array(new memory(20)), [5]),
          new ort.Tensor('float32', new Float32Array(new memory(24)), [6]),
          new ort.Tensor('int32', new Int32Array(6), [2, 3]),
        ];
        const told = [];
        const sentence = ({ type, detail }) => `${type}: ${detail}`;
        for (const c of targets) told.push(await session.run(feeds, { c }).catch(sentence));
        return [told, (await session.run(feeds)).c.data[0]];
        """
    )
    given = ["float32 [1, 5]", "float32 [3, 3]", "float32 [5]", "float32 [6]", "int32 [2, 3]"]
    sentence = 'InvalidInput: output "c" is float32 [2, 3], the tensor to fill is {}'
    assert found == [[sentence.format(g) for g in given], 6]


def test_outputs_are_independent(page: Tab) -> None:
    """A later run leaves the outputs of an earlier one alone."""
    found = page.run(
        PREPARE
        + """
        const session = await open();
        const first = await session.run({ a: tensor(1), b: tensor(1) });
        await session.run({ a: tensor(9), b: tensor(9) });
        return first.c.data[0];
        """
    )
    assert found == 2


def test_integers_and_booleans(page: Tab) -> None:
    found = page.run("""
      const session = await ort.InferenceSession.create('/models/types.onnx');
      const i = new ort.Tensor('int64', [1n, -2n, 2n ** 40n], [3]);
      const p = new ort.Tensor('bool', [true, false], [2]);
      const { n, t } = await session.run({ i, p });
      return [n.type, Array.from(n.data, String), t.type, Array.from(t.data)];
    """)
    assert found == ["int64", ["2", "-4", str(2**41)], "bool", [0, 1]]


def test_release_and_create_50_times(page: Tab) -> None:
    """Python's heap is the same after the tenth and after the fiftieth, and no session or arena is left. What earlier
    tests dropped may be freed meanwhile."""
    found = page.run(
        PREPARE
        + """
        const seen = [await ort.stats()];
        for (let k = 1; k <= 50; k++) {
          const session = await open('affine');
          await session.run({ x: new ort.Tensor('float32', new Float32Array(4), [1, 4]) });
          await session.release();
          if (k % 10 === 0) seen.push(await ort.stats());
        }
        return seen;
        """
    )
    assert isinstance(found, list) and len(found) == 6
    before, *after = found
    assert all(stats[kind] <= before[kind] for stats in after for kind in ("sessions", "arenas"))
    assert after[-1]["heap"] == after[0]["heap"]


def test_worker_restarts(page: Tab) -> None:
    """After a shutdown old sessions fail with a reason and a new one works."""
    found = page.run(
        PREPARE
        + """
        const old = await open();
        const flying = old.run({ a: tensor(1), b: tensor(1) }).then(() => 'ran', (e) => e.type);
        ort.shutdown();
        const again = await open();
        const { c } = await again.run({ a: tensor(1), b: tensor(1) });
        const dead = await old.run({ a: tensor(1), b: tensor(1) }).then(() => 'ran', (e) => e.type);
        return [await flying, c.data[0], dead];
        """
    )
    assert found == ["SessionFailed", 2, "SessionFailed"]


COUNT_MEMORIES = """() => {
  const { Memory } = WebAssembly;
  globalThis.alive = 0;
  const gone = new FinalizationRegistry(() => { globalThis.alive--; });
  WebAssembly.Memory = class extends Memory {
    constructor(how) {
      super(how);
      globalThis.alive++;
      gone.register(this);
    }
  };
}"""


def test_memory_of_released_sessions_is_collected(tab: Callable[..., Tab]) -> None:
    """Shared memory, too, of which the collector of garbage knows nothing: 60 sessions of 4 MB leave less than 40."""
    page = tab()
    page.open("/esm.html")
    page.run("await ort.boot()")
    worker = next(w for w in page.page.workers if "worker.mjs" in w.url)
    worker.evaluate(COUNT_MEMORIES)
    page.run(
        PREPARE
        + """
        const x = new ort.Tensor('float32', new Float32Array(512 * 1024), [512, 1024]);
        for (let k = 0; k < 60; k++) {
          const session = await open('softmax');
          await session.run({ x });
          await session.release();
        }
        """
    )
    assert worker.evaluate("alive") < 40
