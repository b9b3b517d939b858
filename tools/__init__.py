"""Programs for those who work on specfleet; no part of the wheel."""
