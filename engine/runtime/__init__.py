"""Many processes: nodes of a fleet around the shared stations, ZeroMQ between them, and real time.

Begin with `serve.py` (a whole run on this host) and `worker.py` (one station); `executors.py` are a worker's hands.
"""
