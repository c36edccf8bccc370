"""The providers on arrays that one session has opened. All calls of their methods are here, and turn exceptions into
errors that name provider and node."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from pyruntime.codegen.array_provider import ArrayProvider, Bind, Job, Part
from pyruntime.errors import ExecutionError, InvalidInput, PyRuntimeError, Terminated
from pyruntime.host import ARRAYS
from pyruntime.ir.blocks import WHOLE_NODE, is_constant
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Alias, Call, Host, Kernel, Tensor, View, root
from pyruntime.ir.symbol import Symbol
from pyruntime.placement.operations import operations

T = TypeVar("T")
ALL = ""  # in place of a node: all of them
MOST = 3  # faults of a provider after which all nodes leave it


def fault(provider: str, cause: Exception, nodes: Sequence[str] = (ALL,)) -> ExecutionError:
    """The error for an exception of a provider that ran these nodes together."""
    text = cause.message if isinstance(cause, PyRuntimeError) else f"{type(cause).__name__}: {cause}"
    error = ExecutionError(f'provider "{provider}" failed: {text}', node=nodes[0])
    error.provider, error.at_fault = provider, dict.fromkeys(nodes, error.message)
    return error


@contextmanager
def faults_of(provider: str, nodes: Sequence[str] = (ALL,)) -> Iterator[None]:
    """Inside the block, exceptions of a provider that runs these nodes together become ExecutionErrors."""
    try:
        yield
    except Terminated:
        raise
    except Exception as e:
        raise fault(provider, e, nodes) from e


class OpenProvider:
    """One of them. refused: why kernels have left it, by node or for `ALL`; faults: their number; runs: those that have
    begun"""

    def __init__(self, name: str, inner: ArrayProvider) -> None:
        self.name = name
        self.takes_parts = inner.takes_parts
        self.concurrent = inner.concurrent
        self.refused: dict[str, str] = {}
        self.faults = 0
        self.runs = 0
        self.has_memory = type(inner).allocate is not ArrayProvider.allocate
        self._inner = inner
        self._lock = threading.Lock()
        self._weights: weakref.WeakValueDictionary[int, Buffer] = weakref.WeakValueDictionary()
        self._buffers: weakref.WeakSet[Buffer] = weakref.WeakSet()

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, kernel: Kernel, kind: type[T] | tuple[type[T], ...], ask: Callable[[], Any]) -> T:
        """The answer to a question about a kernel, which must be of this kind."""
        with faults_of(self.name, [kernel.node]):
            answer = ask()
            if not isinstance(answer, kind):
                raise TypeError(f"an answer cannot be {answer!r}")
        return answer

    def supports(self, kernel: Kernel) -> str:
        left = self.refused.get(kernel.node) or self.refused.get(ALL, "")
        why = left or self._ask(kernel, str, lambda: self._inner.supports(kernel))
        return why or ("" if self.takes_parts else self.too_costly([kernel]))

    def supports_node(self, call: Call) -> bool:
        """Whether it runs the call of a whole node."""
        node = call.routine.removeprefix(WHOLE_NODE)
        if call.node in self.refused or ALL in self.refused:
            return False
        takes = self._ask(call, bool, lambda: self._inner.supports_node(node, call.args, call.attrs))
        return takes and not self.too_costly([call])

    @property
    def takes_nodes(self) -> bool:
        return type(self._inner).supports_node is not ArrayProvider.supports_node

    def too_costly(self, kernels: Sequence[Kernel]) -> str:
        """The reason why a part of these kernels is faster elsewhere, or ""."""
        part = part_of(kernels, kernels[-1].outputs)
        with faults_of(self.name, nodes_of(kernels)):
            cost = self._inner.cost(part)
            if cost is None:
                return ""
            cost = float(cost)
        work = sum(operations(k) for k in kernels if not isinstance(k, Alias))
        return f"its cost of {cost:.0f} exceeds {work:.0f} operations" if cost > work else ""

    def reads(self, call: Call, operand: int, view: View) -> bool:
        return self._ask(call, bool, lambda: self._inner.reads(call, operand, view))

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        return self._ask(call, bool, lambda: self._inner.fuses(call, out, order, epilogue))

    def packs(self, call: Call, operand: int) -> Kernel | None:
        return self._ask(call, (Kernel, type(None)), lambda: self._inner.packs(call, operand))

    # ── parts and runs ───────────────────────────────────────────────────────────────────────────────────────────

    def step(self, part: Part) -> Host:
        """The kernel that stands for a part."""
        compiled = CompiledPart(self, part)
        step = Host(ARRAYS, tuple(part.inputs), {"part": compiled}, provider=self.name)
        step.outputs, step.node = tuple(part.outputs), part.node
        return step

    def compile(self, part: Part) -> Bind:
        return self._inner.compile(part)

    def allocate(self, size: int) -> Buffer:
        """Memory of its own."""
        buffer = Buffer(self._inner.allocate(max(size, 1)), size, self._free)
        self._buffers.add(buffer)
        return buffer

    def upload(self, buffer: Buffer, array: Any) -> None:
        if array.nbytes:
            self._inner.upload(buffer.handle, array)

    def download(self, buffer: Buffer, array: Any) -> None:
        if array.nbytes:
            self._inner.download(buffer.handle, array)

    def weight(self, uid: int, array: Any) -> Buffer:
        """The memory of a constant, which is uploaded once. uid: of the tensor"""
        with self._lock:  # runs may be concurrent
            if (found := self._weights.get(uid)) is None:
                found = self._weights[uid] = self.allocate(array.nbytes)
                self.upload(found, array)
            return found

    def _free(self, handle: Any) -> None:
        with self._warning():
            self._inner.free(handle)

    @property
    def allocated(self) -> int:
        """Bytes of its own memory."""
        return sum(b.size for b in list(self._buffers) if b.free.alive)

    def run_start(self) -> None:
        self.runs += 1
        with faults_of(self.name):
            self._inner.run_start()

    def run_end(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Errors: ExecutionError, also if the run itself has failed, but never in place of Ctrl-C"""
        try:
            with faults_of(self.name):
                self._inner.run_end(error)
        except ExecutionError:
            if error is None or isinstance(error, Exception):
                raise

    def leave(self, error: ExecutionError) -> bool:
        """The nodes at fault leave the provider after this error of it, after `MOST` errors all nodes. Returns whether
        this changes anything: concurrent runs may fail at the same node."""
        is_new = ALL not in self.refused and not error.at_fault.keys() <= self.refused.keys()
        self.faults += is_new
        self.refused.update(error.at_fault if self.faults < MOST else {ALL: error.message})
        return is_new

    def close(self) -> None:
        for buffer in list(self._buffers):
            buffer.free()
        with self._warning():
            self._inner.close()

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Inside the block, exceptions become warnings."""
        try:
            yield
        except Exception as e:
            warnings.warn(f'provider "{self.name}" failed: {type(e).__name__}: {e}', RuntimeWarning, stacklevel=4)


class Buffer:
    """Memory of a provider's own, which is freed by `free`, or when this object is collected. size: bytes"""

    __slots__ = ("__weakref__", "free", "handle", "size")

    def __init__(self, handle: Any, size: int, free: Callable[[Any], None]) -> None:
        self.handle = handle
        self.size = size
        self.free = weakref.finalize(self, free, handle)


class CompiledPart:
    """A part, compiled.

    nodes: labels of its nodes; compiled: what the provider's `compile` has returned
    With a memory of its own, by uid of the tensor: weights: on the device; made: results of the provider's parts; kept:
    of these, those that stay on the device; once: tensors that are computed once a run
    """

    def __init__(self, provider: OpenProvider, part: Part) -> None:
        self.provider = provider
        self.part = part
        self.nodes = nodes_of(part.kernels)
        self.weights: dict[int, Buffer] = {}
        self.made: Set[int] = frozenset()
        self.kept: Set[int] = frozenset()
        self.once: Set[int] = frozenset()
        with self.faults():
            self.compiled = check_function("compile", provider.compile(part))

    def faults(self) -> Any:
        """Inside the block, exceptions become ExecutionErrors that name provider and nodes."""
        return faults_of(self.provider.name, self.nodes)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any], symbols: Mapping[Symbol, int]) -> Job:
        """The job for these arrays. Errors: ExecutionError, of the job, too"""
        with self.faults():
            job = check_function("bind", self.compiled(inputs, outputs, symbols))

        def run() -> None:
            with self.faults():
                job()

        return run


def check_function(name: str, value: Any) -> Any:
    if not callable(value):
        raise TypeError(f"{name} returned {value!r}, no function")
    return value


def nodes_of(kernels: Sequence[Kernel]) -> list[str]:
    """The labels of the nodes of kernels that compute."""
    return list(dict.fromkeys(k.node for k in kernels if not isinstance(k, Alias)))


def part_of(kernels: Sequence[Kernel], outputs: Sequence[Tensor], once: Collection[int] = ()) -> Part:
    """The part that computes these outputs by these kernels. once: uids of tensors that the init block makes"""
    made = {t.uid for k in kernels for t in k.outputs}
    inputs = {t.uid: t for k in kernels for t in k.inputs if t.uid not in made}
    constant = [root(t).uid in once or is_constant(t) for t in inputs.values()]
    return Part(list(kernels), [*inputs.values()], list(outputs), nodes_of(kernels)[0], constant)


@contextmanager
def running(providers: Sequence[OpenProvider]) -> Iterator[None]:
    """A run of a Program with parts of these providers. Errors: ExecutionError if one fails at the start or the end"""
    with ExitStack() as stack:
        for p in providers:
            p.run_start()
            stack.push(p.run_end)
        yield


class OpenProviders(dict[str, OpenProvider]):
    """By name. They are closed when this object is collected, at the latest."""

    def __init__(self) -> None:
        self._opened: list[OpenProvider] = []
        self._end = weakref.finalize(self, _close, self._opened)

    def add(self, provider: ArrayProvider, given: Mapping[str, Any], threads: int) -> None:
        """Open a provider with these options. Errors: InvalidInput for unknown options; ExecutionError if it fails"""
        name = provider.name
        options = checked_options(provider, given)
        try:
            opened = provider.open(options, threads)
            if not isinstance(opened, ArrayProvider):
                raise TypeError(f"open returned {opened!r}, no provider")
        except InvalidInput:
            raise
        except Exception as e:
            raise fault(name, e) from e
        self[name] = OpenProvider(name, opened)
        self._opened.append(self[name])

    def close(self) -> None:
        self._end()
        self.clear()


def _close(providers: Sequence[OpenProvider]) -> None:
    for p in providers:
        p.close()


def checked_options(provider: ArrayProvider, given: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a provider. Errors: InvalidInput for unknown ones, and for values of other types"""
    if unknown := sorted(given.keys() - provider.options.keys()):
        close = [name for name in provider.options if _are_close(name, unknown[0])]
        hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(provider.options) or 'none'}"
        raise InvalidInput(f'provider "{provider.name}" has no option "{unknown[0]}"', hint=hint)
    return {key: _typed(provider.name, key, given.get(key, value), value) for key, value in provider.options.items()}


def _are_close(a: str, b: str) -> bool:
    """Whether two names have three quarters of their letters in common. (The module difflib is large in pages.)"""
    return 8 * (Counter(a) & Counter(b)).total() >= 3 * (len(a) + len(b))


def _typed(provider: str, key: str, given: Any, default: Any) -> Any:
    """The value of an option, which may be text, as the type of the default. Errors: InvalidInput"""
    kind = type(default)
    if kind not in (bool, int, float, str) or type(given) is kind:
        return given
    text = str(given)
    try:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        hint = f"a value of type {kind.__name__}"
        raise InvalidInput(f'option "{key}" of provider "{provider}" cannot be {given!r}', hint=hint) from None
