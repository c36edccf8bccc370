"""Sessions for Python programs in any Pyodide: the engine compiles in Pyodide, the executor of web/ runs. NumPy is
optional."""
