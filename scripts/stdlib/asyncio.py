"""Replaces asyncio until one of its other names is used (_rest_of_stdlib.py)."""


def get_event_loop():
    """Pyodide's C code gets this function at its start, and calls it whenever it waits."""
    import asyncio

    return asyncio.events.get_event_loop()  # `events` belongs to the whole module


def __getattr__(name):
    if name.startswith("__") and name not in ("__path__", "__all__"):
        raise AttributeError(f"module 'asyncio' has no attribute {name!r}")
    import _rest_of_stdlib

    _rest_of_stdlib.become_whole("asyncio")
    from pyodide.webloop import _initialize_event_loop

    _initialize_event_loop()
    return globals()[name]
