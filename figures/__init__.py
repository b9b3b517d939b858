"""One file a figure; style.py holds what they share."""
