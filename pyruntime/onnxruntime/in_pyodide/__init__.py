"""onnxruntime's classes in Pyodide, where there may be no NumPy, and is no wasmtime."""
