import keras
import numpy as np

from pyruntime import InferenceSession

layers = keras.layers
model = keras.Sequential(
    [keras.Input((64, 64, 3)), layers.Conv2D(8, 3), layers.GlobalAveragePooling2D(), layers.Dense(10)]
)

image = np.random.default_rng(0).random((2, 64, 64, 3), np.float32)  # Keras has channels last
expected = model.predict(image, verbose=0)  # a model is exported after its first call
model.export("model.onnx", format="onnx", verbose=False)

session = InferenceSession("model.onnx")
(logits,) = session.run(None, {session.get_inputs()[0].name: image})
np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-5)
