"""onnxruntime's functions for the whole process. docs/compatibility.md lists those without effect."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

from pyruntime.api.options import SessionOptions

PEER_VERSION = "1.31.1"
"""The release of onnxruntime with this interface; programs check it."""


def get_version_string() -> str:
    return PEER_VERSION


def get_build_info() -> str:
    return f"pyruntime {version('pyruntime-onnx')}, with the interface of onnxruntime {PEER_VERSION}"


def get_default_session_options() -> SessionOptions:
    return SessionOptions()


def has_collective_ops() -> bool:
    return False


def enable_telemetry_events() -> None:
    """Without effect: nothing is sent, ever."""


def disable_telemetry_events() -> None:
    """Without effect: nothing is sent, ever."""


def set_seed(seed: int) -> None:
    """Without effect: a random operator without a seed derives one from its node's name, so a program gets the same
    numbers in every run."""


def set_global_thread_pool_sizes(intra_op_num_threads: int, inter_op_num_threads: int) -> None:
    """Without effect: the options of a session set its threads."""


def create_and_register_allocator(mem_info: Any, arena_cfg: Any) -> None:
    """Without effect: each session plans its own memory."""


def create_and_register_allocator_v2(
    provider_type: str, mem_info: Any, provider_options: Any, arena_cfg: Any
) -> None:  # fmt: skip
    """Without effect: each session plans its own memory."""


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None, verbose: bool = False
) -> None:
    """Without effect: there are no libraries to load."""


def print_debug_info() -> None:
    """Version, platform and Python."""
    print(get_build_info())
    print("platform:", platform.platform())
    print("Python version:", platform.python_version())


__all__ = [
    "PEER_VERSION", "create_and_register_allocator", "create_and_register_allocator_v2", "disable_telemetry_events",
    "enable_telemetry_events", "get_build_info", "get_default_session_options", "get_version_string",
    "has_collective_ops", "preload_dlls", "print_debug_info", "set_global_thread_pool_sizes", "set_seed",
]  # fmt: skip
