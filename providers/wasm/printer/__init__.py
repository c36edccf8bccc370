"""Loop form to WebAssembly functions, and the assembler under it."""
