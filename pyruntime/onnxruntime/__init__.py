"""onnxruntime's module: importing it installs it under that name, for programs that import onnxruntime.

    import pyruntime.onnxruntime

`python -m pyruntime.onnxruntime PROGRAM.py ARGUMENT…` runs a program without a change. Errors: ImportError if the real
onnxruntime is imported already, as what others took from it would stay its own.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

from pyruntime.api.distribution import install
from pyruntime.api.names import NAMES
from pyruntime.api.process import PEER_VERSION

_other = sys.modules.setdefault("onnxruntime", sys.modules[__name__])
if _other is not sys.modules[__name__]:
    raise ImportError("onnxruntime is imported already: import pyruntime.onnxruntime before what imports it")

__version__ = version = PEER_VERSION
package_name = "onnxruntime"
cuda_version = ""
globals().update(NAMES)
install()
# What makes models (quantization, tools, transformers, …) is Python: that of an installed onnxruntime, on this engine.
_installed = PathFinder.find_spec("onnxruntime")
__path__ += (_installed and _installed.submodule_search_locations) or []

__all__ = [*NAMES]  # noqa: PLE0604  names of what is there
