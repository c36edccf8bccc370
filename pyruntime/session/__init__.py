"""What native sessions, pages and Pyodide share: the graph to compile, its Programs, and the states of a session."""
