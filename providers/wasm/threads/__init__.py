"""How threads share the calls of a step."""
