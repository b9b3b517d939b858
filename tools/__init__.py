"""Programs for developers of specfleet; not part of the wheel."""
