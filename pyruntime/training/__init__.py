"""What training sessions do natively and in Pyodide: steps, checkpoints, exports, files."""
