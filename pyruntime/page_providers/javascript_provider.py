"""A provider in JavaScript, as the compiler sees it. Questions cross as JSON; runs call the module without Python
(web/worker/providers/)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.codegen.array_provider import ArrayProvider, Bind, Part
from pyruntime.errors import InternalError, InvalidInput, PyRuntimeError
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Call, Kernel, Tensor, View
from pyruntime.page_providers.plain_form import PlainForm, read_map
from pyruntime.placement.provider_list import options_of, register_provider


class JavaScriptProvider(ArrayProvider):
    """js: the worker's part (web/worker/providers/added_providers.js), whose answers are JSON, {"value"} or {"error"}:
    `take(name)` gives the number of the instance that was opened for this session, `ask(number, member, arguments)` the
    answer of that instance"""

    def __init__(self, js: Any, described: Mapping[str, Any], number: int = -1) -> None:
        self._js = js
        self._described = described
        self._number = number
        self._form = PlainForm()
        self.name = described["name"]  # type: ignore[misc]
        self.takes_parts = described["takesParts"]  # type: ignore[misc]
        options = described["options"].items()
        self.options = {name: float(x) if type(x) is int else x for name, x in options}  # type: ignore[misc]

    def open(self, options: Mapping[str, Any], threads: int) -> JavaScriptProvider:
        return JavaScriptProvider(self._js, self._described, _value(self._js.take(self.name)))

    def _ask(self, member: str, *given: Any) -> Any:
        return _value(self._js.ask(self._number, member, json.dumps(given)))

    def supports(self, kernel: Kernel) -> str:
        return self._ask("supports", self._form.kernel(kernel))

    def supports_node(self, node: str, inputs: Sequence[Tensor | None], attrs: Mapping[str, Any]) -> bool:
        form = self._form
        tensors = [None if t is None else form.tensor(t) for t in inputs]
        return self._ask("supportsNode", node, tensors, {name: form.plain(value) for name, value in attrs.items()})

    def cost(self, part: Part) -> float | None:
        return self._ask("cost", self._part(part))

    def reads(self, call: Call, operand: int, view: View) -> bool:
        return self._ask("reads", self._form.kernel(call), operand, self._form.view(view))

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        form = self._form
        return self._ask("fuses", form.kernel(call), form.tensor(out), order, form.expression(epilogue))

    def packs(self, call: Call, operand: int) -> Kernel | None:
        made = self._ask("packs", self._form.kernel(call), operand)
        return None if made is None else read_map(made, call.operand(operand))

    def compile(self, part: Part) -> Bind:
        return BoundInJavaScript(self._ask("compile", self._part(part)), self._form)

    def _part(self, part: Part) -> dict[str, Any]:
        form = self._form
        return {
            "kernels": [form.kernel(k) for k in part.kernels],
            "inputs": [form.tensor(t) for t in part.inputs],
            "outputs": [form.tensor(t) for t in part.outputs],
            "node": part.node,
            "constant": list(part.constant),
        }


class BoundInJavaScript:
    """Stands for the function that `compile` of a module has returned. number: by which the worker knows it; form: with
    the names that the module knows symbols by"""

    def __init__(self, number: int, form: PlainForm) -> None:
        self.number = number
        self.form = form

    def __call__(self, *given: Any) -> Any:
        raise InternalError("a part in JavaScript was run by Python")


def register(js: Any, described: str) -> None:
    """Register a provider in JavaScript. js: the worker's part; described: JSON, its name, options and takesParts"""
    register_provider(JavaScriptProvider(js, json.loads(described)))


def provider_options(named: str, given: str) -> str:
    """JSON: all options of these providers. named: JSON list; given: JSON, options by name. Errors: InvalidInput"""
    options = json.loads(given)
    return json.dumps({name: options_of(name, options.get(name, {})) for name in json.loads(named)})


def _value(answer: str) -> Any:
    found = json.loads(answer)
    if "error" in found:
        raise (InvalidInput if found.get("isInput") else PyRuntimeError)(found["error"])
    return found["value"]
