"""Tools on top of sessions: inspect a model without loading it, measure schedules."""
