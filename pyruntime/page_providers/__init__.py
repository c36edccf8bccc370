"""Providers that users add to pages and to Pyodide, where the executor is JavaScript: those in Python, and modules in
JavaScript (docs/extending.md#providers-in-javascript)."""
