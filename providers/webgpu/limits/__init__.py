"""What a GPU cannot run, and why."""
