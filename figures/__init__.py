"""One file a figure; style.py and labels.py hold what they share."""
