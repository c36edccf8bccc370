"""Chooses which Program of an exported file a host runs.

A file may hold a Program with shaders and, as its fallback, another one of the same model, on the same blob. The
shaders were written for an assumed GPU adapter; `needs` lists what they use of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyruntime.program.types import Header, Needs

Adapter = Mapping[str, Any]  # a host's GPU adapter, by the names of the fields of providers/webgpu/adapter.py


@dataclass(eq=False, slots=True)
class Half:
    """header: of the Program to run, None if the host can run none in the file; why: why it is not the first one, or
    why there is none; "" for the first"""

    header: Header | None
    why: str


def choose_half(header: Header, adapter: Adapter | None, why_not: str, may_leave_gpu: bool) -> Half:
    """The first Program in a file that the host can run. adapter: the GPU to use, None for none, because of `why_not`;
    may_leave_gpu: whether Programs without shaders count"""
    why = ""
    found: Header | None = header
    while found is not None:
        if "needs" not in found:
            return Half(found if may_leave_gpu or "needs" not in header else None, why)
        reason = why_not if adapter is None else what_is_missing(found["needs"], adapter)
        if adapter is not None and reason == "":
            return Half(found, why)
        why = reason if why == "" else why
        found = fallback_of(found)
    return Half(None, why)


def fallback_of(header: Header) -> Header | None:
    found: Any = header.get("fallback")
    other: Header | None = found
    return other


def what_is_missing(needs: Needs, adapter: Adapter) -> str:
    """A sentence on what the adapter lacks, "" if it has everything."""
    found = missing(needs, adapter)
    name: str = adapter["name"]
    return f'the GPU "{name}" lacks {", ".join(found)}' if len(found) > 0 else ""


def missing(needs: Needs, adapter: Adapter) -> list[str]:
    """What the shaders need that the adapter does not have, each with what it has instead."""
    found: list[str] = []
    if needs["f16"] and not adapter["f16"]:
        found.append("half floats (shader-f16)")
    if needs["subgroups"] and not adapter["subgroups"]:
        found.append("subgroups")
    if "dot4" in needs and needs["dot4"] and not adapter["dot4"]:
        found.append("integer dot products (packed_4x8_integer_dot_product)")
    buffers: int = adapter["storage_buffers"]
    if buffers < needs["storage_buffers"]:
        found.append(f"{needs['storage_buffers']} storage buffers in one shader (it has {buffers})")
    binding: int = adapter["binding_bytes"]
    buffer: int = adapter["buffer_bytes"]
    binding = min(binding, buffer)
    if binding < needs["binding_bytes"]:
        found.append(f"buffers of {needs['binding_bytes']} bytes (it has {binding})")
    shared: int = adapter["shared_bytes"]
    if shared < needs["shared_bytes"]:
        found.append(f"{needs['shared_bytes']} bytes of workgroup memory (it has {shared})")
    limit: int = adapter["iterations"]
    if limit > 0 and ("iterations" not in needs or needs["iterations"] > limit):
        count = f"{needs['iterations']}" if "iterations" in needs else "any number of"
        found.append(f"loops of {count} iterations (it stops after {limit})")
    return found
