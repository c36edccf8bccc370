"""captcha-whisperer reads distorted letters: convolutions and LSTMs."""

import io
import json

from captcha_whisperer import recognize
from PIL import Image, ImageDraw, ImageFont

picture = Image.new("RGB", (200, 60), "white")
ImageDraw.Draw(picture).text((20, 5), "W7KPX", fill="navy", font=ImageFont.load_default(40))
file = io.BytesIO()
picture.rotate(4, fillcolor="white").save(file, "png")
print(json.dumps(recognize(file.getvalue(), detailed=True)))
