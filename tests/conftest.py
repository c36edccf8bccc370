"""Fixtures of the native tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from scripts.javascript.__main__ import main as translate_runtime
from tests.ops import node

Open = Callable[..., Any]
os.environ.setdefault("PYRUNTIME_DISABLE_PROGRAM_CACHE", "1")  # tests compile, instead of opening cached Programs


def pytest_sessionstart(session: pytest.Session) -> None:
    """Translate the runtime to JavaScript, if its Python has changed."""
    if not hasattr(session.config, "workerinput"):
        if translate_runtime([]) != 0:
            raise pytest.UsageError("python -m scripts.javascript refuses a module of pyruntime/runtime")


def restart_generators(*modules: ModuleType) -> None:
    """Seed the global random generators of these modules again."""
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, np.random.Generator):
                value.bit_generator.state = type(value.bit_generator)(7).state


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Tables of a file have the same random numbers, whichever files are collected before it."""
    if isinstance(collector, pytest.Module):
        restart_generators(node)


@pytest.fixture(autouse=True)
def same_numbers(request: pytest.FixtureRequest) -> None:
    """A test draws the same numbers whichever tests run before it."""
    restart_generators(request.module, node)


@pytest.fixture(params=["wasm"])
def provider(request: pytest.FixtureRequest) -> str:
    """Each provider that the engine's tests run on."""
    return request.param


@pytest.fixture
def open_session(provider: str) -> Open:
    """open_session(path or bytes): a session of the engine on `provider`."""
    from pyruntime import InferenceSession

    def opened(model: Path | bytes) -> Any:
        return InferenceSession(str(model) if isinstance(model, Path) else model, providers=[provider])

    return opened
