"""Replayed stations: they take the times of other hardware, and have no model."""
