"""Status of a fleet while it works."""
