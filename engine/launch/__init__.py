"""Launching nodes: the processes of a run on this host, and nodes that a user starts by hand.

- `serve.py`: a whole run. `processes.py`, `bodies.py`: its processes, and what they do. `supervisor.py`: results, and
  scripts of faults.
- `by_hand.py`: nodes on several hosts.
- `watched.py`: counters of a run or node while it works.
- `runnable.py`, `placement.py`: what no run can do; which GPU a station gets.
"""
