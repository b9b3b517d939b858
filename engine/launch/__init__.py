"""Launching nodes: the processes of a run on this host, and nodes that a user starts by hand."""
