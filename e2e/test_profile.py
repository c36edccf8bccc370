"""session.profile: the kernels of a run, each timed on its own."""

from __future__ import annotations

from e2e.conftest import Tab
from kit.chain import chain


def test_profile(page: Tab) -> None:
    """One entry a call, in order; runs before and after it are as ever."""
    found = page.run(
        """
        const session = await ort.InferenceSession.create(Uint8Array.from(arg));
        const x = new ort.Tensor('float32', Float32Array.of(1, 2, 3, 4, 5, 6), [2, 3]);
        const profiled = await session.profile({ x });
        const { y } = await session.run({ x });
        const again = await session.profile({ x });
        await session.release();
        return [profiled, Array.from(y.data), again.length];
        """,
        list(chain(3)),
    )
    assert isinstance(found, list)
    profiled, y, again = found
    assert y == [1, 2, 3, 7, 11, 15]
    assert len(profiled) == again == 3
    assert all(call["kernel"] and call["node"].startswith("CumSum") for call in profiled)
    assert all(call["milliseconds"] >= 0 and call["bytes"] >= 48 for call in profiled)


def test_profile_checks_feeds(page: Tab) -> None:
    found = page.run(
        """
        const session = await ort.InferenceSession.create(Uint8Array.from(arg));
        const reason = (feeds, options) => session.profile(feeds, options).then(() => 'ran', (e) => e.type);
        const x = new ort.Tensor('float32', new Float32Array(6), [2, 3]);
        const errors = [await reason({})];
        for (const repeat of [0, 1.5, 2]) errors.push(await reason({ x }, { repeat }));
        await session.release();
        return errors;
        """,
        list(chain(1)),
    )
    assert found == [*["InvalidInput"] * 3, "ran"]
