"""Pipelines of scikit-learn through skl2onnx with its default options: ZipMap, dicts, columns of text and numbers."""

import json

import numpy as np
import onnxruntime
from skl2onnx import convert_sklearn, to_onnx
from skl2onnx.common.data_types import DictionaryType, FloatTensorType, StringTensorType
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
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

texts = np.array(["good fine nice", "bad awful", "nice and good", "awful, really bad", "fine fine"])
moods = [1, 0, 1, 0, 1]
for vectorizer in (CountVectorizer(), TfidfVectorizer(), TfidfVectorizer(analyzer="char", ngram_range=(1, 2))):
    model = convert_sklearn(
        make_pipeline(vectorizer, MultinomialNB()).fit(texts, moods), initial_types=[("text", StringTensorType([None]))]
    )
    show(f"{type(vectorizer).__name__} {len(told)}", model, {"text": texts})

rows = [{"city": 1.0, "age": 3.0}, {"age": 4.0}, {"city": 2.0}]
vectorizer = DictVectorizer(sparse=False).fit(rows)
types = [("row", DictionaryType(StringTensorType([1]), FloatTensorType([1])))]
model = convert_sklearn(vectorizer, initial_types=types)
for number, row in enumerate(rows):
    show(f"DictVectorizer {number}", model, {"row": row})
print(json.dumps(told))
