"""A file a kind of figure; style.py holds what they share."""
