"""Recognises common files that are not ONNX models by their first bytes, for error messages."""

from __future__ import annotations

from codecs import BOM_UTF8, getincrementaldecoder

from pyruntime.errors import InvalidModel, unreadable
from pyruntime.onnx.graph import Source

_CONVERT = "convert it to ONNX first"
_TORCH = "export it with torch.onnx.export"
_PICKLE, _EXPORTERS = "a Python pickle", "export what is in it to ONNX: torch.onnx.export, skl2onnx"
_ONNX = "give the .onnx file"
_HEAD = 512

# (offset, bytes at it, kind of file, what to do)
_KINDS = (
    (0, b"version https://git-lfs", "a Git LFS pointer", "fetch the file itself with git lfs pull"),
    (0, b"pyrt", "a Program that pyruntime exported", "open it as a session or with `pyruntime run`"),
    *((0, bytes([0x80, protocol]), _PICKLE, _EXPORTERS) for protocol in range(2, 6)),
    (0, b"PK", "a zip archive", "unpack it first"),
    (0, b"\x1f\x8b", "compressed with gzip", "unpack it first"),
    (0, b"BZh", "compressed with bzip2", "unpack it first"),
    (0, b"\xfd7zXZ", "compressed with xz", "unpack it first"),
    (0, b"7z\xbc\xaf", "a 7z archive", "unpack it first"),
    (257, b"ustar", "a tar archive", "unpack it first"),
    (0, b"GGUF", "a GGUF file", "`pyruntime convert` writes the ONNX model; adapters are files of their own"),
    (4, b"TFL3", "a TensorFlow Lite model", "convert it to ONNX first, with tf2onnx for example"),
    (8, b'{"', "a safetensors file, which holds weights without a graph", "export the model that uses them to ONNX"),
    (0, b"\x89HDF", "an HDF5 file, as Keras writes", _CONVERT),
    (0, b"\x93NUMPY", "a NumPy array", "give the model here, arrays are its inputs"),
    (0, b"\x89PNG", "a PNG picture", "give the model here, pictures are its inputs"),
    (0, b"\xff\xd8\xff", "a JPEG picture", "give the model here, pictures are its inputs"),
    (0, b"%PDF", "a PDF document", ""),
    (0, b"\0asm", "a WebAssembly module", ""),
)


def is_ort_format(source: Source) -> bool:
    """Whether a file is in ONNX Runtime's format: its identifier follows the offset of the root table."""
    return source.size >= 8 and bytes(source.read(4, 4)) == b"ORTM"


def is_gguf(source: Source) -> bool:
    """Whether a file is one of llama.cpp's."""
    return source.size >= 4 and bytes(source.read(0, 4)) == b"GGUF"


def not_onnx(source: Source, first_bytes: frozenset[int]) -> InvalidModel | None:
    """The error for a file that does not start like an ONNX model; None if it may be a damaged model.

    first_bytes: the possible first bytes of a model
    """
    head = source.read(0, min(source.size, _HEAD))
    if not head:
        return unreadable("this is not an ONNX model: the file is empty")
    text = _text(head).strip()
    start = f'"{" ".join(text.split())[:24]}"' if text else f"the bytes {head[:8].hex(' ')}"
    kind, hint = _kind(head, text)
    if kind:
        return unreadable(f"this is not an ONNX model but {kind} (it starts with {start})", hint=hint)
    if head[0] in first_bytes:
        return None
    return unreadable(f"this is not an ONNX model: it starts with {start}", hint=_ONNX)


def _kind(head: bytes, text: str) -> tuple[str, str]:
    """The kind of a file, and what to do; empty texts if unknown."""
    if head.startswith(b"PK") and b"data.pkl" in head:
        return "a PyTorch checkpoint", _TORCH
    for offset, magic, kind, hint in _KINDS:
        if head.startswith(magic, offset):
            return kind, hint
    if text.startswith("<"):
        return "a web page or XML", "check the address: many servers send a web page if a file is missing"
    return ("a text file", _ONNX) if text else ("", "")


def _text(head: bytes) -> str:
    """The head as text; empty if it is not text."""
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        # the last character may be incomplete
        text = getincrementaldecoder(encoding)().decode(head.removeprefix(BOM_UTF8))
    except UnicodeDecodeError:
        return ""
    return text if all(c.isprintable() or c.isspace() for c in text) else ""
