"""The engine as a C library, by cffi's embedding (https://cffi.readthedocs.io/en/stable/embedding.html)."""
