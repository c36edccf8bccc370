"""Operators are defined once: a second meaning must state replaces=True. Domains import each other one way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from kit import house
from pyruntime import InferenceSession, InvalidInput, elementwise, op
from pyruntime.frontend import registry
from pyruntime.ir.expr import X
from scripts import rare_operators

TEXT = """<ir_version: 10, opset_import: ["" : 20, "my.ops" : 1]> g (float[3] x) => (float[3] y) { y = %s (x) }"""


@pytest.fixture(autouse=True)
def table_stays() -> Iterator[None]:
    table: Any = registry.table()
    before = dict(table)
    yield
    table.clear()
    table.update(before)


def by_decorator(name: str, factor: float, **how: Any) -> None:
    @op(name, **how)
    def lower(t, x):
        return t.map(X * factor, x)


def by_expression(name: str, factor: float, **how: Any) -> None:
    elementwise(name, expr=X * factor, **how)


Define = Callable[..., None]
both = pytest.mark.parametrize("define", [by_decorator, by_expression])


def run(operator: str) -> list[float]:
    model = onnx.parser.parse_model(TEXT % operator).SerializeToString()
    return InferenceSession(model).run(None, {"x": np.array([1, 2, 3], np.float32)})[0].tolist()


@both
@pytest.mark.parametrize(("name", "how"), [("Twice", {"domain": "my.ops"}), ("Relu", {})])
def test_a_second_meaning_is_refused(define: Define, name: str, how: dict[str, Any]) -> None:
    if "domain" in how:
        define(name, 2, **how)
    with pytest.raises(InvalidInput, match=rf"{name} from opset \d+ on is defined already.*replaces=True"):
        define(name, 3, **how)
    assert run(".".join([*how.get("domain", "").split(), name])) == ([2, 4, 6] if "domain" in how else [1, 2, 3])


@both
def test_it_may_say_that_it_replaces(define: Define) -> None:
    define("Twice", 2, domain="my.ops")
    define("Twice", 20, domain="my.ops", replaces=True)
    assert run("my.ops.Twice") == [20, 40, 60]


@both
def test_what_the_standard_means_may_be_replaced(define: Define) -> None:
    define("Relu", 5, domain="ai.onnx", replaces=True)  # also by the standard's long name
    assert run("Relu") == [5, 10, 15]


@both
def test_replacing_nothing_is_refused(define: Define) -> None:
    with pytest.raises(InvalidInput, match="Relu from opset 15 on is not defined"):
        define("Relu", 2, since=15, replaces=True)


@both
def test_another_opset_is_another_meaning(define: Define) -> None:
    define("Relu", 7, since=20)
    assert run("Relu") == [7, 14, 21]


FRESH = {
    "found": """
import sys
import pyruntime.ops
from pyruntime.frontend import registry
assert "pyruntime.ops.ml.trees" not in sys.modules
common = {key: list(versions) for key, versions in registry._TABLE.items()}
registry.find("ai.onnx.ml", "TreeEnsembleClassifier", 3)
assert "pyruntime.ops.ml.trees" in sys.modules and "pyruntime.ops.ml.svm" not in sys.modules
assert not registry.is_extended()
assert len(registry.table()) > len(common)
assert all(registry.table()[key] == versions for key, versions in common.items()), "families that share an operator"
""",
    "defined": """
from pyruntime import InvalidInput, op
try:
    op("Unique", since=11)(print)
except InvalidInput as error:
    assert "defined already" in str(error)
else:
    raise AssertionError("defined twice")
""",
    "in two threads": """
import sys, threading, time
import pyruntime.ops
from pyruntime.frontend import registry

half = threading.Event()

class Slow:
    def find_spec(self, name, *rest):
        if name == "pyruntime.ops.standard.optimizers":
            registry.op("Twice", domain="a", since=1)(lambda t, x: x)
            half.set()
            time.sleep(0.3)
            registry.op("Twice", domain="a", since=2)(lambda t, x: x)

sys.meta_path.insert(0, Slow())
first = threading.Thread(target=registry.find, args=("ai.onnx.preview.training", "Adam", 1))
first.start()
assert half.wait(60)
assert registry.find("a", "Twice", 2).since == 2
first.join()
""",
    "interrupted": """
import sys
import pyruntime.ops
from pyruntime.frontend import registry

class Interrupts:
    def find_spec(self, name, *rest):
        if name == "pyruntime.ops.standard.unique":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
try:
    registry.find("com.microsoft", "Unique", 1)
except KeyboardInterrupt:
    del sys.meta_path[0]
else:
    raise AssertionError("not interrupted")
for domain in ("com.microsoft", ""):
    registry.find(domain, "Unique", 11)
    registry.find(domain, "GridSample", 16)
assert not registry.is_extended()
""",
}


@pytest.mark.parametrize("code", FRESH.values(), ids=FRESH)
def test_rare_families_come_when_they_are_needed(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_of_rare_operators() -> None:
    """The table is as the modules say."""
    assert rare_operators.FILE.read_text() == rare_operators.text()


@pytest.mark.parametrize(("domain", "known"), [("lib", ()), ("standard", ("lib",)), ("microsoft", ("lib", "standard")),
                                               ("ml", ("lib", "standard"))])  # fmt: skip
def test_domains_import_one_way(domain: str, known: tuple[str, ...]) -> None:
    names = [name for name in house.modules() if name.startswith(f"pyruntime.ops.{domain}.")]
    imported = {i.module for name in names for i in house.imports(name) if i.module.startswith("pyruntime.ops.")}
    assert names and {module.split(".")[2] for module in imported} <= {domain, *known}
