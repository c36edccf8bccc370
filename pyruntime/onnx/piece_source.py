"""Reads a file that consists of pieces (pyruntime/onnx/write.py) as if it were written already."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from pyruntime.onnx.graph import Source
from pyruntime.onnx.write import Piece


class PieceSource:
    """open_file: the file of a piece by name, "" for the old model's; values: bytes of new weights by name"""

    def __init__(
        self, pieces: Sequence[Piece], open_file: Callable[[str], Source], values: Mapping[str, bytes]
    ) -> None:  # fmt: skip
        self.name = ""
        self._pieces = pieces
        self._ends = list(accumulate(piece.size for piece in pieces))
        self._open_file, self._values = open_file, values
        self.size = self._ends[-1] if pieces else 0

    def read(self, offset: int, size: int) -> bytes:
        return b"".join(self.parts(offset, offset + size))

    def parts(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes of a range, piece by piece."""
        for n in range(bisect_right(self._ends, start), len(self._pieces)):
            piece, first = self._pieces[n], self._ends[n] - self._pieces[n].size
            if first >= end:
                return
            a, b = max(start - first, 0), min(end - first, piece.size)
            if piece.is_copy:
                yield self._open_file(piece.file).read(piece.start + a, b - a)
            else:
                whole = self._values[piece.weight] if piece.weight else piece.data
                yield whole if b - a == len(whole) else whole[a:b]
