"""Classifiers of texts: scikit-learn's vectorizers through skl2onnx with its default options.

With the argument "scikit" scikit-learn tells itself: onnxruntime's StringNormalizer needs a locale that is not
installed everywhere.
"""

import json
import sys

import numpy as np
import onnxruntime
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import StringTensorType
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

texts = np.array(["Good, fine: nice!", "bad awful", "nice and good", "awful really bad", "Fine fine"])
moods = [1, 0, 1, 0, 1]
new = np.array(["a fine day", "BAD", "nothing known"])
told = {}
for vectorizer in (CountVectorizer(), TfidfVectorizer(), TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)):
    pipeline = make_pipeline(vectorizer, MultinomialNB()).fit(texts, moods)
    name = f"{type(vectorizer).__name__} {len(told)}"
    if sys.argv[1:] == ["scikit"]:
        scores = [dict(enumerate(row.tolist())) for row in pipeline.predict_proba(new)]
        told[name] = [pipeline.predict(new).tolist(), scores]
        continue
    model = convert_sklearn(pipeline, initial_types=[("text", StringTensorType([None]))])
    labels, scores = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"text": new})
    told[name] = [labels.tolist(), scores]
print(json.dumps(told))
