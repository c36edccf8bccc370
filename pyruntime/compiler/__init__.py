"""The stages in order, and the table of passes, which users extend."""
