"""nudenet (notAI.tech) detects parts of bodies: a YOLO."""

import json

import nudenet.nudenet
import numpy as np
from sklearn.datasets import load_sample_image

detector = nudenet.NudeDetector()
picture = load_sample_image("flower.jpg")[..., ::-1]
inputs, *_ = nudenet.nudenet._read_image(np.ascontiguousarray(picture), 320)
(scores,) = detector.onnx_session.run(None, {detector.input_name: inputs})
print(json.dumps([detector.detect(np.ascontiguousarray(picture)), scores[0, :, ::97].tolist()]))
