"""Reads digits behind Gunicorn: a WSGI application whose session all workers share."""

import json
from pathlib import Path

import numpy as np

from pyruntime import InferenceSession, InvalidInput

# Opened once, before Gunicorn forks its workers (--preload): all of them have the weights in memory once.
session = InferenceSession(Path(__file__).with_name("digits.onnx"))


def app(environ, start_response):
    """GET reads an empty picture, POST one of 28 x 28 numbers in JSON."""
    try:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        image = np.array(json.loads(body) if body else np.zeros((28, 28)), np.float32)
        (probabilities,) = session.run(None, {"image": image.reshape(1, 1, 28, 28)})
        status, text = "200 OK", f"{'A picture' if body else 'A blank'} is read as {probabilities.argmax()}."
    except (InvalidInput, ValueError, TypeError) as error:
        status, text = "400 Bad Request", str(error)
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [text.encode()]
