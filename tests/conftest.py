"""Fixtures of the native tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Open = Callable[..., Any]


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
