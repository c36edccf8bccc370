"""Classifiers of scikit-learn through skl2onnx with its default options: scores by class (ZipMap), dicts as inputs."""

import json

import numpy as np
import onnxruntime
from skl2onnx import convert_sklearn, to_onnx
from skl2onnx.common.data_types import DictionaryType, FloatTensorType, StringTensorType
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

told = {}


def show(name, model, feeds):
    results = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    told[name] = [result.tolist() if isinstance(result, np.ndarray) else result for result in results]


x, y = load_iris(return_X_y=True)
x = x.astype(np.float32)
names = np.array(["setosa", "versicolor", "virginica"])[y]
for classifier in (
    LogisticRegression(max_iter=500),
    make_pipeline(StandardScaler(), LogisticRegression()),
    RandomForestClassifier(5, random_state=0),
    GradientBoostingClassifier(n_estimators=5, random_state=0),
):
    for labels in (y, names):
        model = to_onnx(classifier.fit(x, labels), x[:1])
        show(f"{type(classifier).__name__} {labels.dtype.kind} {len(told)}", model, {"X": x[::25]})

rows = [{"city": 1.0, "age": 3.0}, {"age": 4.0}, {"city": 2.0}]
vectorizer = DictVectorizer(sparse=False).fit(rows)
types = [("row", DictionaryType(StringTensorType([1]), FloatTensorType([1])))]
model = convert_sklearn(vectorizer, initial_types=types)
for number, row in enumerate(rows):
    show(f"DictVectorizer {number}", model, {"row": row})
print(json.dumps(told))
