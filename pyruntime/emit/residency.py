"""Tracks tensors in several memories: where each is made, and its copies for kernels that work in other memories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pyruntime.codegen.provider import LINEAR, Memory
from pyruntime.ir.blocks import all_kernels, compute_kernels, own_inputs
from pyruntime.ir.kernel import Block, Host, If, Kernel, Leaf, Loop, Read, Tensor, root


class Residency:
    """where(kernel): the memory in which a kernel works; device_memories: the memories besides linear memory.

    A copy is available in the block that made it and in its inner blocks; copies of constants and of results of `init`
    are available everywhere."""

    def __init__(self, where: Callable[[Kernel], Memory], device_memories: Sequence[Memory]) -> None:
        self.where = where
        self.device_memories = device_memories
        self.made_in: dict[int, Memory] = {}
        self.copies: dict[tuple[int, Memory], Tensor] = {}
        self.updated: dict[int, Tensor] = {}  # by uid: the copy that a kernel has changed in place; others are old

    def memory(self, t: Tensor) -> Memory:
        return self.made_in.get(self._buffer(t).uid, LINEAR)

    def _buffer(self, t: Tensor) -> Tensor:
        """The tensor whose buffer holds this one."""
        base = root(t)
        return self.updated.get(base.uid, base)

    def at(self, t: Tensor, where: Memory) -> Tensor:
        """The tensor's copy in another memory, if there is one; else the tensor itself."""
        base = self._buffer(t)
        own = t if base is root(t) else base
        return own if self.memory(base) is where else self.copies.get((base.uid, where), own)

    def missing(self, tensors: Sequence[Tensor], where: Memory) -> list[Tensor]:
        """The buffers of the tensors that are not in this memory."""
        buffers = {t.uid: t for t in map(self._buffer, tensors)}
        return [t for t in buffers.values() if self.memory(t) is not where and (t.uid, where) not in self.copies]

    def add_copy(self, t: Tensor, where: Memory, leaf: Leaf | None = None) -> Tensor:
        """A new tensor in this memory for a copy step to fill. leaf: a weight that the executor loads instead."""
        copy = Tensor(t.shape, t.dtype, Leaf("copy") if leaf is None else replace(leaf), 0, t.name)
        self.made_in[copy.uid] = where
        self.copies[t.uid, where] = copy
        return copy

    def mark_made(self, tensors: Sequence[Tensor], where: Memory) -> None:
        for t in tensors:
            self.made_in[t.uid] = where

    def mark_updated(self, t: Tensor, where: Memory) -> None:
        """A kernel in this memory changes the tensor in place: copies in other memories have the old elements."""
        base = self._buffer(t)
        here = self.at(base, where)
        self.copies = {key: copy for key, copy in self.copies.items() if key[0] not in (base.uid, here.uid)}
        if here is not base:
            self.updated[root(t).uid] = here

    @contextmanager
    def inner_block(self) -> Iterator[None]:
        """Inside the block, copies are temporary: a branch may not run, and a loop body runs again."""
        outer = dict(self.copies)
        yield
        self.copies = outer

    # ── constants ────────────────────────────────────────────────────────────────────────────────────────────────

    def constants(self, init: Block, main: Block) -> list[tuple[Tensor, Memory]]:
        """Add a copy in device memory for each weight that kernels read in it; the executor loads such copies directly.
        Returns the results of `init` that must be copied after it has run, each with the memory to copy it to."""
        made = {t.uid for k in init.kernels for t in k.outputs}
        carried: dict[tuple[int, Memory], tuple[Tensor, Memory]] = {}
        self._place_states(main)
        for kernel in compute_kernels(main):
            where = self.where(kernel)
            for t in map(root, kernel.inputs):
                if where is LINEAR or (t.uid, where) in self.copies:
                    continue
                if isinstance(t.kernel, Leaf) and t.kernel.kind in ("weight", "constant"):
                    self.add_copy(t, where, t.kernel)
                elif t.uid in made:
                    carried[t.uid, where] = (t, where)
        return list(carried.values())

    def _place_states(self, main: Block) -> None:
        """A state is in the memory in which it is updated; kernels elsewhere read copies, which each run makes."""
        for kernel in compute_kernels(main):
            for t in map(root, kernel.outputs):
                if isinstance(t.kernel, Leaf) and t.kernel.kind == "state":
                    self.mark_made([t], self.where(kernel))

    def read_in_linear_memory(self, block: Block) -> list[Tensor]:
        """The tensors that kernels in linear memory read, including those of inner blocks."""
        out = [t for k in compute_kernels(block) if self.where(k) is LINEAR for t in k.inputs]
        return out + [t for k in all_kernels(block) if isinstance(k, (Read, Host, If, Loop)) for t in own_inputs(k)]
