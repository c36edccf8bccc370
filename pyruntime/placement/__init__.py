"""Which provider runs which kernel, of those that a session asks for."""
