"""What the tests, the bench and the demo share: models with known outputs, a browser, the official suite, peers.

It imports the engine and nothing of tests/, e2e/, bench/ or demo/ (tests/test_house.py).

models              every real model with feeds and a check of its outputs; zoo/ holds 21 architectures without weights
small_models, chain, probes, speech    models and sounds made in a few lines, for one purpose each
conformance/        the official ONNX backend suite, on any provider, natively or in Chromium
chromium            the package in a page of headless Chromium, with onnxruntime's Python shape
interpret           a model by the reference evaluator alone
trapping_kernel     a kernel that fails on one thread
python_calls        counts the Python functions entered in a page
docs                the code blocks of the documentation
"""
