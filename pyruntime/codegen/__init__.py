"""From kernels to the loop form that printers print, and the interface that a provider implements."""
