"""Losses and optimisers that are Python functions: called once with traced tensors, whose methods record nodes.

Twin of web/page/training/traced_functions.js. Both write the traces that pyruntime/runtime/traced_vocabulary.py
describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log
from typing import Any, NoReturn

from pyruntime.errors import InvalidInput, PyRuntimeError
from pyruntime.runtime.traced_vocabulary import ELEMENTWISE, LISTS, MOST_RANK, SHAPED, TENSORS, methods, misuse

Node = list[Any]
_VALUE = "a traced tensor has no value: the function is called once, before there are data"
LARGEST = 1.7976931348623157e308  # finite number of float64
_HINT = "a.where(b, c) chooses for each element"


class TracedTensor:
    """A value of a traced function. rank: of weights, gradients; -1 if it is not known yet"""

    __array_ufunc__ = None  # NumPy's numbers leave operators to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, nodes: list[Node], place: int, rank: int = -1) -> None:
        self._nodes, self._place, self._rank = nodes, place, rank

    @property
    def rank(self) -> int:
        if self._rank < 0:
            raise InvalidInput("the rank of a traced tensor is known only of weights and gradients of an optimizer")
        return self._rank

    def __getattr__(self, name: str) -> Callable[..., TracedTensor]:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in ELEMENTWISE and name not in SHAPED:
            raise InvalidInput(f'a traced tensor has no method "{name}"', hint=f"known: {', '.join(methods())}")
        return lambda *args, **settings: self._called(name, args, settings)

    def _called(self, name: str, args: tuple[Any, ...], settings: Mapping[str, Any]) -> TracedTensor:
        named = {**dict(zip(SHAPED.get(name, ()), args, strict=False)), **settings}
        named = {k: v for k, v in named.items() if v is not None}
        count = len(args) + (len(settings) if name in ELEMENTWISE else 0)
        text = misuse(name, [*named], count)
        if text or name in SHAPED and len(args) > len(SHAPED[name]):
            raise InvalidInput(text or f"{name} takes {len(SHAPED[name])} arguments, not {len(args)}")
        others = args if name in ELEMENTWISE else [named.pop(k) for k in TENSORS if k in named]
        operands = [str(self._place), *[_operand(self._nodes, x) for x in others]]
        self._nodes.append([name, operands, {k: _setting(name, k, v) for k, v in named.items()}])
        return TracedTensor(self._nodes, len(self._nodes) - 1)

    def _no_value(self, *_: Any) -> NoReturn:
        raise InvalidInput(_VALUE, hint=_HINT)

    __bool__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __array__ = __getitem__ = _no_value


def _operator(name: str, is_reflected: bool) -> Callable[..., TracedTensor]:
    def plain(self: TracedTensor, *others: Any) -> TracedTensor:
        return self._called(name, others, {})

    def reflected(self: TracedTensor, other: Any) -> TracedTensor:
        nodes = self._nodes
        nodes.append([name, [_operand(nodes, other), str(self._place)], {}])
        return TracedTensor(nodes, len(nodes) - 1)

    return reflected if is_reflected else plain


for _name in "abs neg add sub mul pow eq ne lt le gt ge matmul".split():
    setattr(TracedTensor, f"__{_name}__", _operator(_name, False))
for _special, _name in {"truediv": "div", "and": "logical_and", "or": "logical_or", "invert": "logical_not"}.items():
    setattr(TracedTensor, f"__{_special}__", _operator(_name, False))
for _special, _name in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow"}.items():
    setattr(TracedTensor, f"__r{_special}__", _operator(_name, True))


def _operand(nodes: list[Node], x: Any) -> Any:
    """Errors: InvalidInput for what is no traced tensor of this function, number or list of numbers"""
    if isinstance(x, TracedTensor):
        if x._nodes is not nodes:
            raise InvalidInput("a traced tensor is of another function", hint="use what this function is called with")
        return str(x._place)
    x = x.tolist() if hasattr(x, "tolist") else x
    numbers = list(x) if isinstance(x, (list, tuple)) else [x]
    if not all(isinstance(n, (int, float)) and abs(n) <= LARGEST for n in numbers):
        raise InvalidInput(f"a traced function cannot compute with {x!r}", hint="tensors, finite numbers, or lists")
    return [float(n) for n in numbers] if isinstance(x, (list, tuple)) else float(x)


def _setting(method: str, name: str, value: Any) -> Any:
    """Errors: InvalidInput"""
    if name == "keepdims" and isinstance(value, bool):
        return value
    found = list(value) if isinstance(value, (list, tuple)) and name in LISTS else [value]
    if name == "keepdims" or not all(isinstance(n, int) and not isinstance(n, bool) for n in found):
        raise InvalidInput(f"{name} of {method} cannot be {value!r}")
    return found if name in LISTS else found[0]


class Leaves:
    """Tensors by name, as attributes or items; new: those that the function has set"""

    _nodes: list[Node]
    _kind: str
    _found: dict[str, TracedTensor]
    _new: dict[str, Any]

    def __init__(self, nodes: list[Node], kind: str) -> None:
        vars(self).update(_nodes=nodes, _kind=kind, _found={}, _new={})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._correction if name == "correction" and self._kind == "number" else self[name]

    def __getitem__(self, name: str) -> TracedTensor:
        if name in self._new:
            found: TracedTensor = self._new[name]
            return found
        if name not in self._found:
            self._found[name] = _leaf(self._nodes, self._kind, name)
        return self._found[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if self._kind != "state" or not name:
            raise InvalidInput(f'"{name}" cannot be set', hint="an optimizer sets values of its state")
        self._new[name] = value

    def _correction(self, beta: float) -> TracedTensor:
        """1 - beta to the power of the step's number, also where beta is almost 1."""
        if not isinstance(beta, (int, float)) or not 0 < beta < 1:
            raise InvalidInput(f"correction cannot be of {beta!r}", hint="a number between 0 and 1")
        x: Any = self["number"].mul(log(beta))
        series: Any = 1  # of (exp(x) - 1) / x
        for k in (6, 5, 4, 3, 2):
            series = x * series / k + 1
        found: TracedTensor = (x > -0.25).where(-x * series, 1 - x.exp())
        return found


def _leaf(nodes: list[Node], kind: str, name: str, rank: int = -1) -> TracedTensor:
    nodes.append([kind, [], {"name": name}])
    return TracedTensor(nodes, len(nodes) - 1, rank)


def _ended(nodes: list[Node], results: Mapping[str, Any], what: str) -> list[Node]:
    """The trace of a function that returned. results: by name, the first of which is what it returned"""
    for name, x in results.items():
        if not isinstance(x, TracedTensor):
            text = f"{what} returned {type(x).__name__}" if name == "" else f'"{name}" is set to {type(x).__name__}'
            raise InvalidInput(text, hint="a traced tensor")
    nodes.append(["return", [_operand(nodes, x) for x in results.values()], {"names": list(results)}])
    return nodes


def _result(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """Of a call. Errors: InvalidInput, also for those of the function itself"""
    try:
        return function(*args)
    except PyRuntimeError:
        raise
    except Exception as error:
        raise InvalidInput(f"the function of {what} raised {type(error).__name__}: {error}") from error


def trace_loss(function: Callable[..., Any]) -> list[Node]:
    """function(outputs, labels): outputs and inputs of the model by name; targets. Errors: InvalidInput"""
    nodes: list[Node] = []
    result = _result("the loss", function, Leaves(nodes, "output"), Leaves(nodes, "label"))
    return _ended(nodes, {"": result}, "the loss")


def trace_update(function: Callable[..., Any]) -> list[list[Node]]:
    """function(weight, gradient, state, step), which returns the new weight: a trace for each rank. Errors:
    InvalidInput"""
    return [update_of(function, rank) for rank in range(MOST_RANK + 1)]


def update_of(function: Callable[..., Any], rank: int) -> list[Node]:
    nodes: list[Node] = []
    weight, gradient = (_leaf(nodes, kind, "", rank) for kind in ("weight", "gradient"))
    state = Leaves(nodes, "state")
    result = _result("the optimizer", function, weight, gradient, state, Leaves(nodes, "number"))
    return _ended(nodes, {"": result, **state._new}, "the optimizer")


def adafactor(w: Any, g: Any, state: Any, step: Any) -> Any:
    """Of matrices the mean squares of rows and columns, whose product estimates those of elements. The rate is relative
    to the root mean square of the weight, and falls as 1/√n.

    Source: https://arxiv.org/abs/1804.04235, as torch.optim.Adafactor"""
    share = step.number ** (0 - step.exponent)
    squares = g.square()
    if w.rank > 1:
        state.rows = state.rows + (squares.mean([-1], True) - state.rows) * share
        state.columns = state.columns + (squares.mean([-2], True) - state.columns) * share
        v = state.rows * state.columns / state.rows.mean([-2], True).maximum(step.epsilon)
    else:
        v = state.v = state.v + (squares - state.v) * share
    u = g / v.maximum(step.epsilon.square()).sqrt()
    rate = step.rate.minimum(1 / step.number.sqrt()) * w.square().mean().sqrt().maximum(step.smallest)
    return w * (1 - step.rate * step.decay) - u * (rate / (u.square().mean().sqrt() / step.clip).maximum(1))


FUNCTIONS: dict[str, Callable[..., Any]] = {"adafactor": adafactor}


def traced(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options in which functions are replaced by their traces."""
    found, loss, optimizer = {**options}, options.get("loss"), options.get("optimizer")
    if loss is not None:
        found["loss"] = [*map(_with_trace, loss)] if isinstance(loss, (list, tuple)) else _with_trace(loss)
    if callable(optimizer):
        optimizer = {"function": {"update": optimizer}}
    if isinstance(optimizer, Mapping) and isinstance(own := optimizer.get("function"), Mapping):
        update = own.get("update")
        found["optimizer"] = {"function": {**own, "update": trace_update(update) if callable(update) else update}}
    return found


def _with_trace(loss: Any) -> Any:
    if callable(loss):
        return {"function": trace_loss(loss)}
    if isinstance(loss, Mapping) and callable(loss.get("function")):
        return {**loss, "function": trace_loss(loss["function"])}
    return loss
