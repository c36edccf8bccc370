"""A package outside pyruntime that extends it. tests/test_extending.py and e2e/test_extending.py use it."""
