"""Sessions: models compiled for feeds, their Programs cached, their options, feeds and the queue of their runs."""
