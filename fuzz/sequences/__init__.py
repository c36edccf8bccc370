"""Random sequences of calls, drawn by Hypothesis' state machines and compared with NumPy after each call."""
