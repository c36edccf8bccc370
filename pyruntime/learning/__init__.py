"""Reverse-mode differentiation of traced kernels. In the browser these modules load when a page first asks for a
gradient."""
