"""Stands in for onnxruntime: once this module is imported, `import onnxruntime` returns it.

    import pyruntime.onnxruntime

`python -m pyruntime.onnxruntime PROGRAM.py ARGUMENT…` runs an unchanged program. Errors: ImportError if the real
onnxruntime is already imported, because other modules may have references to its classes.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

from pyruntime.api.distribution import install
from pyruntime.api.process import PEER_VERSION
from pyruntime.onnxruntime.names import NAMES

_other = sys.modules.setdefault("onnxruntime", sys.modules[__name__])
if _other is not sys.modules[__name__]:
    raise ImportError("onnxruntime is imported already: import pyruntime.onnxruntime before modules that import it")

__version__ = version = PEER_VERSION
package_name = "onnxruntime"
cuda_version = ""
globals().update(NAMES)
install()
# Submodules that make models (quantization, tools, transformers, …) are pure Python: use those of an installed
# onnxruntime.
_installed = PathFinder.find_spec("onnxruntime")
__path__ += (_installed and _installed.submodule_search_locations) or []

__all__ = [*NAMES]  # noqa: PLE0604  all are strings
