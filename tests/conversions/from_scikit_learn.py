import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pyruntime import InferenceSession

x, y = load_iris(return_X_y=True)
x = x.astype(np.float32)
pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)

model = to_onnx(pipeline, x[:1], options={"zipmap": False})  # probabilities as a tensor, not as a list of dicts
with open("model.onnx", "wb") as file:
    file.write(model.SerializeToString())

labels, probabilities = InferenceSession("model.onnx").run(None, {"X": x})
np.testing.assert_array_equal(labels, pipeline.predict(x))
np.testing.assert_allclose(probabilities, pipeline.predict_proba(x), atol=1e-5)
