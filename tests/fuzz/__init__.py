"""Frames of broken peers at a drafter with sound targets. `make fuzz` sends a million."""
