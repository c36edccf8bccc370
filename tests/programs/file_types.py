"""magika (Google) tells kinds of files by their contents."""

import json

from magika import Magika

teller = Magika()
contents = [
    b"def area(r):\n    return 3.14 * r * r\n" * 3,
    b"%PDF-1.7\n1 0 obj\n",
    b"<html><body>Hi</body></html>",
    b"a,b\n1,2\n",
]
results = [teller.identify_bytes(content) for content in contents]
print(json.dumps([[result.output.label, result.score] for result in results]))
