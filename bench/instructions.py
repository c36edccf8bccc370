"""python -m bench instructions: counts the WebAssembly instructions of a run of each model, on one thread.

The numbers are the same on any machine and under any load, so that they show the effect of a change even if times are
noisy. wasmtime counts them as fuel: https://docs.wasmtime.dev/examples-interrupting-wasm.html It counts the code for
pages, not the code for wasmtime (docs/design/cpu-kernels.md#code-for-cranelift).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

import wasmtime

from bench import machine, models
from kit import field, zoo
from pyruntime.providers.wasm.wasmtime_host import WasmHost

HISTORY = Path(__file__).parent / "history" / "instructions.json"
PLENTY = 1 << 62
of_pages = property(lambda host, own=WasmHost.target: own.__get__(host) | {"cranelift": False})


class FuelConfig(wasmtime.Config):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.consume_fuel = True


class FuelStore(wasmtime.Store):  # type: ignore[misc]
    made: list[FuelStore] = []

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.set_fuel(PLENTY)
        self.made.append(self)


def count(name: str) -> int:
    """Return the instructions of a model's second run, which has a plan already."""
    from pyruntime import InferenceSession
    from pyruntime.native.sessions import shared_weights

    feeds = models.feeds(name)
    FuelStore.made.clear()
    alone = patch.object(shared_weights, "_open", WeakSet())  # another session's engine counts nothing
    fuel = patch.multiple(wasmtime, Config=FuelConfig, Store=FuelStore)
    with alone, fuel, patch.object(WasmHost, "target", of_pages):
        session = InferenceSession(str(models.path(name)))
        session.run(None, feeds)
        left = sum(store.get_fuel() for store in FuelStore.made)
        session.run(None, feeds)
        return left - sum(store.get_fuel() for store in FuelStore.made)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench instructions", description=__doc__)
    parser.add_argument("models", nargs="*", help="default: the zoo")
    parser.add_argument("--field", action="store_true", help="the field instead (kit/field)")
    parser.add_argument("--save", action="store_true", help="keep the numbers in bench/history")
    args = parser.parse_args(argv)
    kept = json.loads(HISTORY.read_text()) if HISTORY.exists() else {}
    before = dict(kept.get("models", {}))
    found: dict[str, int] = {}
    print(f"{'model':28}{'instructions':>16}{'change':>10}")
    for name in args.models or (field.names() if args.field else zoo.names()):
        found[name] = count(name)
        change = f"{found[name] / before[name] - 1:+.2%}" if name in before else "new"
        print(f"{name:28}{found[name]:16,}{change:>10}", flush=True)
    if args.save:
        HISTORY.write_text(json.dumps({"commit": machine.commit(), "models": before | found}, indent=1) + "\n")
    return 0
