"""Tensors in two memories: where each is made, and its twin where a kernel of another provider reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.ir.blocks import all_kernels, compute_kernels, own_inputs
from pyruntime.ir.kernel import Block, Host, If, Kernel, Leaf, Loop, Read, Tensor, root

HOME, AWAY = "wasm", "webgpu"


class Crossings:
    """`where(kernel)` is the memory in which a kernel works. Twins are known in the block that made them; those of
    constants everywhere. `made` are the twins of the current block, by uid."""

    def __init__(self, where: Callable[[Kernel], str]) -> None:
        self.where = where
        self.home: dict[int, str] = {}
        self.twins: dict[tuple[int, str], Tensor] = {}
        self.made: set[int] = set()

    def memory(self, t: Tensor) -> str:
        return self.home.get(root(t).uid, HOME)

    def at(self, t: Tensor, where: str) -> Tensor:
        """The tensor itself, or its twin in another memory if there is one."""
        base = root(t)
        return t if self.memory(base) == where else self.twins.get((base.uid, where), t)

    def missing(self, tensors: Sequence[Tensor], where: str) -> list[Tensor]:
        """The roots of those that are not in this memory."""
        roots = {root(t).uid: root(t) for t in tensors}
        return [t for t in roots.values() if self.memory(t) != where and (t.uid, where) not in self.twins]

    def cross(self, t: Tensor, where: str) -> Tensor:
        """A new twin, to be filled by a copy."""
        twin = Tensor(t.shape, t.dtype, Leaf("twin"), 0, t.name)
        self.home[twin.uid] = where
        self.twins[t.uid, where] = twin
        self.made.add(twin.uid)
        return twin

    def made_at(self, kernel: Kernel, where: str) -> None:
        for t in kernel.outputs:
            self.home[t.uid] = where

    def scratch(self, tensors: Sequence[Tensor], where: str) -> None:
        for t in tensors:
            self.home[t.uid] = where

    def enter(self) -> tuple[dict[tuple[int, str], Tensor], set[int]]:
        outer = dict(self.twins), self.made
        self.made = set()
        return outer

    def leave(self, outer: tuple[dict[tuple[int, str], Tensor], set[int]], keep_twins: bool) -> None:
        if not keep_twins:
            self.twins = outer[0]
        self.made = outer[1]

    # ── constants ────────────────────────────────────────────────────────────────────────────────────────────────

    def constants(self, init: Block, main: Block) -> list[Tensor]:
        """Give weights that kernels read elsewhere their own twins there, loaded directly; returns the results of
        `init` that are to be copied when it has run."""
        made = {t.uid for k in init.kernels for t in k.outputs}
        carried: dict[int, Tensor] = {}
        for kernel in compute_kernels(main):
            where = self.where(kernel)
            for t in map(root, kernel.inputs):
                if where == HOME or (t.uid, where) in self.twins:
                    continue
                if isinstance(t.kernel, Leaf) and t.kernel.kind in ("weight", "constant"):
                    twin = Tensor(t.shape, t.dtype, Leaf(t.kernel.kind, t.kernel.value), 0, t.name)
                    self.home[twin.uid] = where
                    self.twins[t.uid, where] = twin
                elif t.uid in made:
                    carried[t.uid] = t
        return list(carried.values())

    def uses_at_home(self, block: Block) -> list[Tensor]:
        """What kernels that work at home read, inner blocks included."""
        out = [t for k in compute_kernels(block) if self.where(k) == HOME for t in k.inputs]
        return out + [t for k in all_kernels(block) if isinstance(k, Read | Host | If | Loop) for t in own_inputs(k)]


__all__ = ["AWAY", "HOME", "Crossings"]
