"""Sessions in a Pyodide that is not ours: the engine compiles there, and web/'s executor runs. NumPy is not needed."""
