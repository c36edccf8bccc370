"""Adapters of a session: which it has, and what a run with some of them feeds."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pyruntime.errors import InvalidInput, not_found
from pyruntime.learning.adapters.adapter_file import PEFT_FILES, Adapter, read_adapter
from pyruntime.native.sessions.adapter_values import array_of, initial
from pyruntime.onnx.graph import Graph

_KEPT = 8  # combinations of adapters whose matrices are kept


class LoraAdapter:
    """An adapter in memory: `add_active_adapter` of RunOptions takes it.

    source: a file (.onnx_adapter, .safetensors), its bytes, or a folder of PEFT; config: adapter_config.json, if the
    tensors are given as bytes. Errors: ModelNotFound, InvalidInput"""

    def __init__(self, source: Any = None, config: bytes | str | None = None) -> None:
        self.adapter: Adapter | None = None
        self.name = ""
        if source is not None:
            self._read(source, config)

    def Load(self, path: str | os.PathLike[str]) -> None:
        self._read(path, None)

    def _read(self, source: Any, config: bytes | str | None) -> None:
        if isinstance(source, (str, os.PathLike)):
            self.name = Path(source).name
            self.adapter = _from_path(Path(source), config)
        elif isinstance(source, (bytes, bytearray, memoryview)):
            self.name = "adapter"
            self.adapter = read_adapter(bytes(source), config)
        else:
            raise InvalidInput(f"an adapter cannot be of type {type(source).__name__}", hint="its path or its bytes")

    def loaded(self) -> Adapter:
        if self.adapter is None:
            raise InvalidInput("this adapter is empty", hint="call Load(path) first")
        return self.adapter


def _from_path(path: Path, config: bytes | str | None) -> Adapter:
    file, beside = (path / name for name in PEFT_FILES) if path.is_dir() else (path, path.with_name(PEFT_FILES[1]))
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise not_found(file) from None
    except OSError as error:
        raise InvalidInput(f'"{file}" cannot be read: {error}') from None
    found = read_adapter(data, config)
    has_own = bool(found.config) or path.suffix == ".onnx_adapter" or config is not None
    return found if has_own or not beside.exists() else read_adapter(data, beside.read_bytes())


class SessionAdapters:
    """The adapters that a session was created with, and the arrays that its runs are fed for those they use.

    graph: the model's, with inputs for the matrices of adapters, which the session compiles
    dims: the largest rank, by the name of its dim, for which `prepare` reserves memory

    Errors: ModelNotFound, InvalidInput for an adapter that does not fit the model."""

    def __init__(self, graph: Graph, given: Mapping[str, Any]) -> None:
        self.graph = graph
        self.dims: dict[str, int] = {}
        self._inputs = {v.name for v in graph.inputs}
        self._named = {name: x if isinstance(x, LoraAdapter) else LoraAdapter(x) for name, x in given.items()}
        self._serving: Any = None
        self._feeds: OrderedDict[Any, dict[str, np.ndarray]] = OrderedDict()
        self._places: WeakKeyDictionary[Adapter, Any] = WeakKeyDictionary()
        self._lock = Lock()
        if self._named:
            from pyruntime.learning.adapters.serving import RANK, serve  # few sessions have adapters

            self._serving = serve(graph, {name: x.loaded() for name, x in self._named.items()})
            self.graph = self._serving.graph
            for name, x in self._named.items():
                x.name = name
                self._places_of(x)
            ranks = [t.shape[0] for x in self._named.values() for n, t in x.loaded().tensors.items() if "lora_A" in n]
            self.dims = {RANK: max(ranks, default=0)} if self._serving.rows_a else {}

    def feeds(self, active: Sequence[tuple[Any, float]] = ()) -> Mapping[str, np.ndarray]:
        """What a run feeds besides the caller's feeds. active: adapters (or their names) and weights. Errors:
        InvalidInput"""
        if not active and self._serving is None:
            return {}
        adapters = [(self._adapter(x), weight) for x, weight in active]
        key = tuple((a.loaded(), weight) for a, weight in adapters)
        with self._lock:  # runs may be concurrent
            if key not in self._feeds:
                self._feeds[key] = self._joined(adapters)
                if len(self._feeds) > _KEPT:
                    self._feeds.popitem(last=False)
            self._feeds.move_to_end(key)
            return self._feeds[key]

    def _adapter(self, x: Any) -> LoraAdapter:
        if isinstance(x, LoraAdapter):
            return x
        if x not in self._named:
            known = ", ".join(self._named) or "none"
            raise InvalidInput(f'the session has no adapter "{x}"', hint=f"its option adapters names {known}")
        return self._named[x]

    def _places_of(self, x: LoraAdapter) -> Any:
        """Where its tensors go. Errors: InvalidInput"""
        adapter = x.loaded()
        if adapter not in self._places:
            self._places[adapter] = self._serving.places(adapter, x.name)
        return self._places[adapter]

    def _joined(self, active: Sequence[tuple[LoraAdapter, float]]) -> dict[str, np.ndarray]:
        serving = self._serving
        if serving is None:
            return self._plain(active)
        found = {name: initial(w) for name, w in serving.defaults.items()}
        places = [self._places_of(x) for x, _ in active]
        if serving.rows_a:
            found |= _stacked(serving, active, places)
        fed: dict[str, list[tuple[int, np.ndarray]]] = {}
        for (x, weight), place in zip(active, places, strict=True):
            for one in place.fed:
                array = array_of(x.loaded().tensors[one.tensor])
                array = array.T if one.is_transposed else array
                scale = one.scale * (weight if one.axis == 0 else 1.0)
                fed.setdefault(one.input, []).append((one.axis, array if scale == 1 else array * np.float32(scale)))
        types = {v.name: v.type for v in serving.graph.inputs}
        return found | {name: _fed(name, parts, types[name]) for name, parts in fed.items()}

    def _plain(self, active: Sequence[tuple[LoraAdapter, float]]) -> dict[str, np.ndarray]:
        """Of a session without the option `adapters`: the parameters are inputs of the model."""
        found: dict[str, np.ndarray] = {}
        for x, weight in active:
            tensors = x.loaded().tensors
            if unknown := next((n for n in tensors if n not in self._inputs), None):
                hint = "name the adapter in the option adapters when the session is created"
                raise InvalidInput(f'the model has no input "{unknown}" for adapter "{x.name}"', hint=hint)
            if weight != 1.0 or tensors.keys() & found.keys():
                hint = "name the adapters in the option adapters when the session is created"
                raise InvalidInput(f'adapter "{x.name}" cannot be combined with others', hint=hint)
            found |= {n: array_of(t) if t.dtype == "bfloat16" else _own(t) for n, t in tensors.items()}
        return found


def _own(t: Any) -> np.ndarray:
    return np.frombuffer(t.data, t.dtype).reshape(t.shape)


def _stacked(serving: Any, active: Sequence[tuple[LoraAdapter, float]], places: Sequence[Any]) -> dict[str, np.ndarray]:
    """The two matrices with all modules as rows, and the ranks of the adapters side by side."""
    from pyruntime.learning.adapters.serving import ALL_A, ALL_B

    ranks = [max((e.rank for e in place.entries), default=0) for place in places]
    all_a = np.zeros((serving.rows_a, sum(ranks)), np.float32)
    all_b = np.zeros((serving.rows_b, sum(ranks)), np.float32)
    first = 0
    for (x, weight), place, rank in zip(active, places, ranks, strict=True):
        tensors = x.loaded().tensors
        for e in place.entries:
            a, b = array_of(tensors[e.a]), array_of(tensors[e.b])
            columns = slice(first, first + e.rank)
            all_a[e.first_a : e.first_a + e.rows_a, columns] = a.T if e.is_peft else a
            scaled = (b if e.is_peft else b.T) * np.float32(e.scale * weight)
            all_b[e.first_b : e.first_b + e.rows_b, columns] = scaled
        first += rank
    return {ALL_A: all_a, ALL_B: all_b}


def _fed(name: str, parts: Sequence[tuple[int, np.ndarray]], kind: Any) -> np.ndarray:
    """The input of this name, in its type, with the parts of all active adapters along the axis of the rank."""
    axis, first = parts[0]
    if len(parts) > 1 and axis < 0:
        raise InvalidInput(f'several active adapters have a tensor for input "{name}"', hint="activate one")
    joined = first if len(parts) == 1 else np.concatenate([x for _, x in parts], axis)
    dtype = kind.dtype.name if kind is not None else joined.dtype.name
    return np.ascontiguousarray(joined, dtype) if dtype != "bfloat16" else np.ascontiguousarray(joined)
