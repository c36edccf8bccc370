"""Replaces Pyodide's package loader until a package is loaded (_rest_of_stdlib.py); a start loads none."""

from pyodide_js import loadedPackages  # noqa: F401  for a snapshot of the memory, as in scripts/pack.py


class _Place:
    def __init__(self, path):
        self.path = path

    def __str__(self):
        return self.path


SITE_PACKAGES = _Place("/lib/python3.14/site-packages")
DSO_DIR = _Place("/usr/lib")


def init_loaded_packages():
    pass


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    import _rest_of_stdlib

    _rest_of_stdlib.become_whole(__name__)
    return globals()[name]
