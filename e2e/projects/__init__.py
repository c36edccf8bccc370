"""Projects of bundlers, frameworks and test runners with this package in them, from npm's registry:
`python -m e2e.projects`."""
