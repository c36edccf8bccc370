"""Decides which requests to a batcher share a run, and where their rows are in its tensors (docs/batching.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import TypeAlias

Dims: TypeAlias = Sequence[int | str | None]  # the dims that a model declares: sizes, names, or None if unknown


@dataclass(eq=False, slots=True)
class Declared:
    """An input or output of a model. dims: None if it is no tensor, or a tensor of any rank."""

    name: str
    dims: Dims | None


class BatchLayout:
    """Where the batch is in a model's inputs and outputs.

    dim: name of the batch dim, "" for the first one that inputs have; first dims without a name count, too
    padded: inputs whose other free dims are padded to the largest among the requests
    refused: why the model cannot run batches, or ""
    """

    def __init__(self, inputs: list[Declared], outputs: list[Declared], dim: str, padded: list[str]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.padded = set(padded)
        self.refused = ""
        self.batched: set[str] = set()  # names of the inputs that have a row for each item
        self.dim = dim
        for x in inputs:
            if self.dim == "" and x.dims is not None and len(x.dims) > 0:
                named = x.dims[0]
                if isinstance(named, str):
                    self.dim = named
        for x in inputs:
            if x.dims is None:
                self._refuse(f'input "{x.name}" is no tensor')
            elif len(x.dims) > 0 and self._is_batch(x.dims[0]):
                self.batched.add(x.name)
        if len(self.batched) == 0:
            self._refuse("no input has a free first dim" if dim == "" else f'no input has the first dim "{dim}"')
        for name in padded:
            if name not in self.batched:
                self._refuse(f'"{name}" is no input with a batch dim')
        for x in outputs:
            if x.dims is None or len(x.dims) == 0 or isinstance(x.dims[0], int):
                self._refuse(f'output "{x.name}" has no batch dim')

    def _refuse(self, reason: str) -> None:
        """The first reason counts."""
        if self.refused == "":
            self.refused = reason

    def _is_batch(self, dim: int | str | None) -> bool:
        return not isinstance(dim, int) and (dim is None or dim == self.dim)

    def key(self, types: dict[str, str], dims: dict[str, list[int]], contents: dict[str, str]) -> str:
        """Equal for requests that can share a run. types, dims: of a request's feeds; contents: texts of those feeds
        that have no batch dim, which are equal for equal feeds"""
        parts: list[str] = []
        for x in self.inputs:
            if x.name not in types:
                parts.append("-")
            elif x.name not in self.batched:
                parts.append(f"{types[x.name]}={contents[x.name]}")
            else:
                other = [str(n) for n in dims[x.name][1:]]
                if x.name in self.padded and x.dims is not None:
                    other = ["*" if not isinstance(d, int) else n for d, n in zip(list(x.dims)[1:], other, strict=True)]
                parts.append(f"{types[x.name]}[{','.join(other)}]")
        return ";".join(parts)

    def rows(self, dims: dict[str, list[int]]) -> int:
        """The number of rows of a request; -1 if its inputs have different numbers, or none."""
        found = [dims[x.name][0] for x in self.inputs if x.name in self.batched and x.name in dims]
        if len(found) == 0:
            return -1
        return found[0] if min(found) == max(found) and found[0] > 0 else -1

    def length(self, dims: dict[str, list[int]]) -> int:
        """The elements in a row of a request's padded inputs."""
        return sum([prod(dims[x.name][1:]) for x in self.inputs if x.name in self.padded and x.name in dims])

    def shared_dims(self, requests: list[list[int]]) -> list[int]:
        """The dims of an input that holds these requests' feeds, padded if they differ."""
        rows = sum([dims[0] for dims in requests])
        return [rows, *[max([dims[axis] for dims in requests]) for axis in range(1, len(requests[0]))]]

    def result_dims(self, name: str, dims: list[int], request: dict[str, list[int]]) -> list[int]:
        """The dims of a request's part of an output, without padding. dims: of the whole output; request: dims of the
        request's feeds"""
        sizes: dict[str, int] = {}  # by name of a dim, its size in this request before padding
        for x in self.inputs:
            if x.name in self.padded and x.name in request and x.dims is not None:
                for dim, size in zip(list(x.dims), request[x.name], strict=True):
                    if isinstance(dim, str):
                        sizes[dim] = size
        own = [self.rows(request), *dims[1:]]
        for x in self.outputs:
            if x.name == name and x.dims is not None and len(x.dims) == len(dims):
                for axis in range(1, len(dims)):
                    dim = x.dims[axis]
                    if isinstance(dim, str):
                        own[axis] = sizes.get(dim, dims[axis])
        return own


@dataclass(eq=False, slots=True)
class Waiting:
    """A request that waits. due: when its run should start, at the latest; length: see `BatchLayout.length`."""

    number: int
    rows: int
    due: float
    length: int


class Gatherer:
    """Groups requests. size: most rows of a run; wait: how long a request waits for others, in any unit."""

    def __init__(self, size: int, wait: float) -> None:
        self.size = size
        self.wait = wait
        self._groups: dict[str, list[Waiting]] = {}

    def add(self, key: str, number: int, rows: int, now: float, length: int = 0) -> None:
        """number: counts requests"""
        group = self._groups.setdefault(key, [])
        group.append(Waiting(number, rows, now + self.wait, length))

    def remove(self, number: int) -> bool:
        """Drop a request. Returns whether it still waited."""
        for key in list(self._groups.keys()):
            rest = [x for x in self._groups[key] if x.number != number]
            if len(rest) < len(self._groups[key]):
                self._keep(key, rest)
                return True
        return False

    def due(self) -> float:
        """When `take` has a run; inf if no request waits."""
        first = inf
        for group in self._groups.values():
            first = min(first, -inf if self._is_full(group) else group[0].due)
        return first

    def take(self, now: float) -> list[int]:
        """Return the requests of the next run: from a full group, else from the oldest group past its deadline, else
        []. The group's first request is among them, with those whose lengths are nearest to its own, so that little is
        padded."""
        chosen = ""
        first = inf
        for key in self._groups.keys():
            group = self._groups[key]
            due = -inf if self._is_full(group) else group[0].due
            if due < first:
                chosen = key
                first = due
        if first > now or len(self._groups) == 0:
            return []
        group = self._groups[chosen]
        oldest = group[0].length
        order = sorted(group, key=lambda x: (abs(x.length - oldest), x.number))
        count = 1
        rows = order[0].rows
        while count < len(order) and rows + order[count].rows <= self.size:
            rows += order[count].rows
            count += 1
        numbers = [x.number for x in order[:count]]
        self._keep(chosen, [x for x in group if x.number not in numbers])
        return numbers

    def _is_full(self, group: list[Waiting]) -> bool:
        return sum([x.rows for x in group]) >= self.size

    def _keep(self, key: str, rest: list[Waiting]) -> None:
        if len(rest) > 0:
            self._groups[key] = rest
        else:
            del self._groups[key]
