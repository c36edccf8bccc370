"""piper-tts (Open Home Foundation) adds the signs of vowels to Arabic text before it speaks."""

import json

from piper.tashkeel import TashkeelDiacritizer

print(json.dumps(TashkeelDiacritizer()("السلام عليكم كيف حالك اليوم")))
