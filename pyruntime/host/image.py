"""Decoding of images, by Pillow if it is installed."""

from __future__ import annotations

import io
from typing import Any

from pyruntime.errors import ExecutionError
from pyruntime.host.table import host_function
from pyruntime.ir.reference import Array


@host_function("decode_image")
def decode_image(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """The bytes of an encoded image -> (height, width, channels); pixel_format is RGB, BGR or Grayscale."""
    try:
        from PIL import Image, UnidentifiedImageError  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ExecutionError("ImageDecoder needs Pillow", hint="install the package pillow") from None
    assert args[0] is not None
    try:
        image = Image.open(io.BytesIO(bytes(args[0][1])))
        image = image.convert("L" if attrs["pixel_format"] == "Grayscale" else "RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ExecutionError(f"ImageDecoder cannot read this image: {error}") from error
    data = bytearray(image.tobytes())
    if attrs["pixel_format"] == "BGR":
        data[0::3], data[2::3] = data[2::3], data[0::3]
    channels = 1 if attrs["pixel_format"] == "Grayscale" else 3
    return [((image.height, image.width, channels), list(data))]
