"""arabic-name-romanizer writes names in Latin letters: an encoder, and a decoder that is run letter by letter."""

import json

from arabic_name_romanizer import transliterate

names = ["محمد", "خديجة", "عبدالرحمن الشمري", "زينب الحداد"]
print(json.dumps([[str(candidate) for candidate in transliterate(name, top_k=3)] for name in names]))
