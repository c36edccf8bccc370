"""rapidocr_onnxruntime (RapidAI) reads a page of text: detection, direction and recognition."""

import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR

page = Image.new("RGB", (480, 160), "white")
draw = ImageDraw.Draw(page)
for line, text in enumerate(["Twelve pears, 3.50 EUR", "Total 42"]):
    draw.text((20, 20 + 60 * line), text, fill="black", font=ImageFont.load_default(34))
found, _ = RapidOCR()(np.asarray(page))
print(json.dumps(found))
