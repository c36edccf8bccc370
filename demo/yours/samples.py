"""Writes samples.jpg beside this file: pieces of three photographs of scikit-image, a row for each.

usage: python -m demo.yours.samples FOLDER      where scikit-image's package has skimage/data; needs Pillow
"""

from __future__ import annotations

import sys
from pathlib import Path

NAMES = ("brick", "grass", "gravel")  # yours.js has the same
SIDE, COLUMNS, CUT = 128, 6, 170  # pixels of a sample, samples of a class, pixels of a piece of the photograph


def main(folder: Path) -> None:
    from PIL import Image

    sheet = Image.new("L", (COLUMNS * SIDE, len(NAMES) * SIDE))
    for row, name in enumerate(NAMES):
        with Image.open(folder / "skimage" / "data" / f"{name}.png") as photograph:
            for n in range(COLUMNS):
                left, top = n % 3 * CUT, n // 3 * CUT
                piece = photograph.crop((left, top, left + CUT, top + CUT)).resize((SIDE, SIDE))
                sheet.paste(piece, (n * SIDE, row * SIDE))
    sheet.save(Path(__file__).with_name("samples.jpg"), quality=82, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
