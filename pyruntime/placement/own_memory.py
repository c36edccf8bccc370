"""Memories of providers' own (`ArrayProvider.allocate`): which results stay there, and the values of an executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from pyruntime.codegen.array_provider import DeviceArray, Job
from pyruntime.host import ARRAYS
from pyruntime.ir.blocks import all_kernels, own_inputs
from pyruntime.ir.kernel import Alias, Block, Host, Leaf, Loops, Tensor, root
from pyruntime.ir.shape import evaluate
from pyruntime.ir.symbol import Symbol
from pyruntime.placement.open_providers import Buffer, CompiledPart, OpenProvider, check_function

KEPT = "kept"  # the attribute of a part's step: uids of the results that stay on its provider's device


def keep_on_devices(main: Block, outputs: Sequence[Tensor]) -> None:
    """Results that only parts of their own provider read stay on its device. outputs: of the Program"""
    kernels = all_kernels(main)
    steps = [k for k in kernels if isinstance(k, Host)]
    parts = {k: part for k in steps if (part := part_of_step(k)) and part.provider.has_memory}
    blocks = [main, *[inner for k in kernels for inner in k.blocks]]
    needed = _roots(outputs) | _roots([t for b in blocks for t in b.outputs])
    changed = _roots([t for k in kernels if isinstance(k, Loops) for t in k.bases])
    read = [root(t) for part in parts.values() for t in part.part.inputs]
    feeds = {t.uid for t in read if isinstance(t.kernel, Leaf) and t.kernel.kind == "feed"}
    made_here = [root(t) for k in main.kernels for t in k.outputs]
    once = (feeds | {t.uid for t in made_here if not isinstance(t.kernel, Leaf)}) - changed
    for provider in {part.provider for part in parts.values()}:
        own = [k for k, part in parts.items() if part.provider is provider]
        others = [k for k in kernels if k not in own and not isinstance(k, Alias)]
        made = _roots([t for k in own for t in k.outputs]) - changed
        kept = made - needed - _roots([t for k in others for t in own_inputs(k)])
        for k in own:
            k.attrs[KEPT] = parts[k].kept = kept
            parts[k].made, parts[k].once = made, once


def _roots(tensors: Sequence[Tensor]) -> set[int]:
    return {root(t).uid for t in tensors}


def part_of_step(step: Host) -> CompiledPart | None:
    """The part that a step stands for, if it does."""
    return step.attrs["part"] if step.fn == ARRAYS else None


class OwnMemory:
    """The values that one executor has in memories of providers' own, each in a buffer of its own."""

    def __init__(self) -> None:
        self._buffers: dict[int, Buffer] = {}  # by uid of the tensor
        self._uploaded: dict[int, int] = {}  # by uid: the number of the run

    def close(self) -> None:
        for buffer in self._buffers.values():
            buffer.free()
        self._buffers.clear()

    def bind(
        self, part: CompiledPart, inputs: Sequence[Any], outputs: Sequence[Any], symbols: Mapping[Symbol, int]
    ) -> Job:
        """The job of a part for these arrays; None: values on the device. Errors: ExecutionError, of the job, too"""
        if not part.provider.has_memory:
            return part.bind(inputs, outputs, symbols)
        tensors = [*part.part.inputs, *part.part.outputs]
        shapes = [tuple(evaluate(d, symbols) for d in t.shape) for t in tensors]
        bytes_of = [prod(shape) * t.dtype.size for t, shape in zip(tensors, shapes, strict=True)]
        count = len(inputs)
        bound: list[Buffer] = []
        job: Job | None = None

        def run() -> None:
            nonlocal bound, job
            with part.faults():
                given = [self._given(part, n, x, bytes_of[n]) for n, x in enumerate(inputs)]
                made = [self._room(part, t, size) for t, size in zip(part.part.outputs, bytes_of[count:], strict=True)]
                if job is None or bound != given + made:
                    bound = given + made
                    arrays = [DeviceArray(b.handle, shape) for b, shape in zip(bound, shapes, strict=True)]
                    job = check_function("bind", part.compiled(arrays[:count], arrays[count:], symbols))
                job()
                for buffer, array in zip(made, outputs, strict=True):
                    if array is not None:
                        part.provider.download(buffer, array)

        return run

    def _given(self, part: CompiledPart, n: int, array: Any, size: int) -> Buffer:
        """An input, which is uploaded unless it is on the device."""
        t = part.part.inputs[n]
        uid = root(t).uid
        if part.part.constant[n]:
            part.weights[uid] = part.provider.weight(uid, array)
            return part.weights[uid]
        if uid in part.made:
            return self._buffers[uid]
        room = self._room(part, t, size)
        run = part.provider.runs
        if uid not in part.once or self._uploaded.get(uid) != run:
            part.provider.upload(room, array)
            self._uploaded[uid] = run
        return room

    def _room(self, part: CompiledPart, t: Tensor, size: int) -> Buffer:
        """Memory for a tensor: that of earlier runs, if it suffices; else a quarter more than needed, if it grows."""
        uid = root(t).uid
        old = self._buffers.get(uid)
        if old is not None and old.size >= size:
            return old
        if old is not None:
            old.free()
        self._buffers[uid] = made = part.provider.allocate(size if old is None else size * 5 // 4)
        return made


def described(steps: Sequence[Host]) -> dict[str, dict[str, int]]:
    """By provider with a memory of its own, numbers of tensors: "uploaded" and "downloaded" in each run, "weights"
    (uploaded once), "kept" (results that stay on the device); "bytes" that are allocated"""
    found: dict[OpenProvider, list[CompiledPart]] = {}
    for part in filter(None, map(part_of_step, steps)):
        if part.provider.has_memory:
            found.setdefault(part.provider, []).append(part)
    return {provider.name: _counts(provider, parts) for provider, parts in found.items()}


def _counts(provider: OpenProvider, parts: Sequence[CompiledPart]) -> dict[str, int]:
    given = [(root(t).uid, once) for p in parts for t, once in zip(p.part.inputs, p.part.constant, strict=True)]
    made = {root(t).uid for p in parts for t in p.part.outputs}
    return {
        "uploaded": len({uid for uid, once in given if not once} - parts[0].made),
        "downloaded": len(made - parts[0].kept),
        "weights": len({uid for uid, once in given if once}),
        "kept": len(parts[0].kept),
        "bytes": provider.allocated,
    }
