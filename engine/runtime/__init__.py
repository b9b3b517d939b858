"""Many processes: nodes of a fleet around the shared stations, ZeroMQ between them, and real time.

A node is one process of a fleet: the drafter, a target, or many replayed targets. Begin with `serve.py` (a whole run on
this host) and `worker.py` (one station in real time); `executors.py` runs a station's steps on the models.
"""
