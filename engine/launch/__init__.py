"""Launching nodes: the processes of a run on this host, and nodes that a user starts by hand.

- `serve.py`: a whole run. `bodies.py`: what its processes do. `processes.py`, `launcher_pipe.py`: processes and their
  pipes. `supervisor.py`: results, and scripts of faults.
- `by_hand.py`, `shown.py`: nodes on several hosts, and what they show.
- `watched.py`, `status_cache.py`: counters of a run or node while it works, and its status for `specfleet top`.
- `runnable.py`, `placement.py`: what no run can do; which GPU a station gets.
"""
