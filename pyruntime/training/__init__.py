"""Training and adapters. From the bottom up: derive/ records gradients, files/ has formats of weights, adapters/ is
LoRA, graph/ makes a model's graph that of a step, session/ is what native and Pyodide's training sessions share. Pages
load these modules when a session first trains or has adapters."""
