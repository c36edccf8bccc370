"""Sessions for Python programs in any Pyodide: the engine compiles there, web/'s executor runs. NumPy is optional."""
