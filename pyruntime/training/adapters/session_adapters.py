"""The adapters of a session, natively and in Pyodide. Twin of web/page/training/adapters.js."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from pyruntime.errors import InvalidInput
from pyruntime.onnx.graph import Graph
from pyruntime.runtime.adapter_places import ALL_A, ALL_B, ALL_MAGNITUDES, Places, check_together, rank_of
from pyruntime.training.adapters.adapter_file import Adapter
from pyruntime.training.adapters.adapter_inputs import RANK, AdapterInputs
from pyruntime.training.adapters.lora_adapter import LoraAdapter
from pyruntime.training.files.safetensors import Stored

MOST_COMBINATIONS = 8  # whose matrices a session keeps
Array = TypeVar("Array")


class Active(NamedTuple):
    """An adapter of a run. places: of its tensors in the inputs of the graph"""

    name: str
    adapter: Adapter
    places: Places
    weight: float


class SessionAdapters(ABC, Generic[Array]):
    """The adapters that a session was created with, and what its runs feed for those they use.

    graph: the model's, with inputs for adapters, which the session compiles
    dims: the largest rank, by the name of its dim, for which `prepare` reserves memory

    adapters: the session's option `adapters`; described: the header's "adapters" if the graph is that of a Program

    Errors: ModelNotFound; InvalidInput for an adapter that does not fit the model, or a Program without places for any;
    InvalidModel for a damaged Program"""

    def __init__(self, graph: Graph, adapters: Mapping[str, Any], described: Any = None) -> None:
        self.graph = graph
        self.dims: dict[str, int] = {}
        self._named = {name: x if isinstance(x, LoraAdapter) else LoraAdapter(x) for name, x in adapters.items()}
        self._inputs: AdapterInputs | None = None
        self._feeds: OrderedDict[Any, dict[str, Array]] = OrderedDict()
        self._places: WeakKeyDictionary[Adapter, Places] = WeakKeyDictionary()
        self._lock = Lock()
        if described is not None:
            self._inputs = AdapterInputs.from_program(described, graph)
        elif adapters:
            from pyruntime.training.adapters.adapted_graph import adapted_graph  # few sessions have adapters

            adapted = adapted_graph(graph, {name: x.loaded() for name, x in self._named.items()})
            self._inputs, self.graph = adapted, adapted.graph
        for name, x in self._named.items():
            x.name = name
            if rank := rank_of(self._places_of(x).entries):
                self.dims[RANK] = max(self.dims.get(RANK, 0), rank)

    @property
    def inputs(self) -> set[str]:
        """Names of inputs that every run feeds."""
        found = self._inputs
        if found is None:
            return set()
        own = (ALL_A, ALL_B) if found.rows_a else ()
        return {*found.defaults, *own, *((ALL_MAGNITUDES,) if found.has_magnitudes else ())}

    def in_file(self) -> dict[str, Any]:
        """What the header of a Program says about adapters."""
        return {} if self._inputs is None else self._inputs.in_file()

    def feeds(self, active: Sequence[tuple[Any, float]] = ()) -> Mapping[str, Array]:
        """What a run feeds besides the caller's feeds. active: adapters (or their names) and weights. Errors:
        InvalidInput"""
        if not active and self._inputs is None:
            return {}
        adapters = [(self._adapter(x), weight) for x, weight in active]
        combination = tuple((x.loaded(), weight) for x, weight in adapters)
        with self._lock:  # runs may be concurrent
            if combination not in self._feeds:
                self._feeds[combination] = self._computed(adapters)
                if len(self._feeds) > MOST_COMBINATIONS:
                    self._feeds.popitem(last=False)
            self._feeds.move_to_end(combination)
            return self._feeds[combination]

    def _adapter(self, x: Any) -> LoraAdapter:
        if isinstance(x, LoraAdapter):
            return x
        if x not in self._named:
            known = ", ".join(self._named) or "none"
            raise InvalidInput(f'the session has no adapter "{x}"', hint=f"its option adapters names {known}")
        return self._named[x]

    def _places_of(self, x: LoraAdapter) -> Places:
        """Errors: InvalidInput"""
        adapter = x.loaded()
        if adapter not in self._places:
            assert self._inputs is not None
            self._places[adapter] = self._inputs.places(adapter, x.name)
        return self._places[adapter]

    def _computed(self, active: Sequence[tuple[LoraAdapter, float]]) -> dict[str, Array]:
        if self._inputs is None:
            return self._own_inputs(active)
        defaults = {name: self.array(t) for name, t in self._inputs.defaults.items()}
        chosen = [Active(x.name, x.loaded(), self._places_of(x), weight) for x, weight in active]
        check_together([one.places for one in chosen])
        return {**defaults, **self.joined(self._inputs, chosen)}

    def _own_inputs(self, active: Sequence[tuple[LoraAdapter, float]]) -> dict[str, Array]:
        """For a session without the option `adapters`: the tensors have the names of the model's inputs."""
        found: dict[str, Array] = {}
        names = {v.name for v in self.graph.inputs}
        hint = "name the adapters in the option adapters when the session is created"
        for x, weight in active:
            tensors = x.loaded().tensors
            if unknown := next((n for n in tensors if n not in names), None):
                raise InvalidInput(f'the model has no input "{unknown}" for adapter "{x.name}"', hint=hint)
            if weight != 1.0 or tensors.keys() & found.keys():
                raise InvalidInput(f'adapter "{x.name}" cannot be combined with others', hint=hint)
            found |= {name: self.array(t) for name, t in tensors.items()}
        return found

    @abstractmethod
    def array(self, t: Stored) -> Array:
        """A tensor as a feed."""

    @abstractmethod
    def joined(self, inputs: AdapterInputs, active: Sequence[Active]) -> dict[str, Array]:
        """Feeds by name: ALL_A, ALL_B and ALL_MAGNITUDES if the graph has them, and the model's own inputs that these
        adapters have tensors for. Errors: InvalidInput for adapters that cannot be joined"""
