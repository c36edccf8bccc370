"""Machine code for x86-64 that replaces inner functions of products on the desktop: an encoder, tiles, pages."""
