"""Passes that read tensors through views instead of copying them."""
