"""What a training session needs of the place where it runs: a session for the graph of the steps, and arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pyruntime.session.memory_report import MemoryReport
from pyruntime.training.adapters.lora import Merge
from pyruntime.training.files.safetensors import Stored
from pyruntime.training.session.state_values import StateValues

T = TypeVar("T")


class StepSession(Protocol):
    """An inference session for the graph of the steps."""

    id: int  # in events

    def check_feeds(self, input_feed: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        """Feeds of a run for these outputs, as values with a shape. Errors: InvalidInput"""

    def run(self, output_names: Sequence[str], input_feed: Mapping[str, Any], run_options: Any) -> list[Any]: ...

    def tell(self, kind: str, **event: Any) -> None:
        """Give listeners of "session" an event."""

    def with_states(self, work: Callable[[StateValues[Any]], T]) -> T:
        """The result of `work`, while no run is under way."""

    def metrics(self) -> Mapping[str, Any]: ...

    def explain(self) -> dict[str, Any]: ...

    def memory(self) -> MemoryReport: ...

    def trim(self) -> None: ...

    def release(self) -> None: ...


class Arrays(Protocol):
    """The arrays of callers, and arithmetic on stored numbers."""

    def stored(self, name: str, x: Any) -> Stored:
        """A copy of a caller's array. Errors: InvalidInput if it has no numbers"""

    def array(self, t: Stored) -> Any:
        """A copy for the caller."""

    def feed(self, t: Stored) -> Any: ...

    def cast(self, t: Stored, dtype: str) -> Stored:
        """The numbers in another type; those that are too large for it are infinite."""

    def times(self, t: Stored, factor: float) -> Stored:
        """In float32."""

    def is_finite(self, t: Stored) -> bool: ...

    def with_products(self, w: Stored, merges: Sequence[Merge], values: Mapping[str, Stored]) -> Stored:
        """A weight with products of adapters added, in float32, or as it is in float64. values: of the adapters"""
