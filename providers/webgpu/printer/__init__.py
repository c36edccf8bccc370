"""Loop form to WGSL text."""
