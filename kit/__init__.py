"""Shared by the tests, the bench, the fuzzer and the demo: models with known outputs, browsers, the official suite.

It imports the engine and nothing of tests/, e2e/, bench/ or demo/ (tests/test_house.py).

models              whole networks with feeds and a check of their outputs: digits and Silero with trained weights, all
                    others with random ones (zoo/: 21 exported graphs; light_models: five of the onnx wheel)
field/              networks built here, in float32, half floats and quantised, with random weights
small_models, chain, probes, speech    models and sounds made in a few lines, for one purpose each
conformance/        the official ONNX backend suite, on any provider, natively or in Chromium
chromium            the package in a page of headless Chromium, with onnxruntime's Python shape
interpret           a model by the reference evaluator alone
trapping_kernel     a kernel that fails on one thread
once                work that the first of the tests' processes does for all
python_calls        counts the Python functions entered in a page
docs                the code blocks of the documentation
"""
