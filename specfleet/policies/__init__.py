"""The decisions of a station, each a small immutable rule looked up by name."""
