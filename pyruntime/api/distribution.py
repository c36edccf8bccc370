"""Makes importlib.metadata find an onnxruntime, because programs read its version there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, DistributionFinder
from typing import Any

from pyruntime.api.process import PEER_VERSION

NAME = "onnxruntime"


class _Peer(Distribution):
    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {PEER_VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        raise FileNotFoundError(f"{path}: this {NAME} is pyruntime, and has no such file")


class _Finder(DistributionFinder):
    def find_spec(self, *_: Any) -> None:
        return None

    def find_distributions(self, context: DistributionFinder.Context = DistributionFinder.Context()) -> Iterator[Any]:  # noqa: B008  importlib's signature
        if context.name == NAME:
            yield _Peer()


def install() -> None:
    """Append the finder, so that an installed onnxruntime is found first."""
    sys.meta_path.append(_Finder())
