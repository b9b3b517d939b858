"""Comparison of runs: which quantities differ, by how much, and why. `compare_runs` is what users call.

`compare.py`: runs and their predictions, quantity by quantity. `differences.py`: keys that two runs do not share.
`loads.py`: a simulated load beside what a server's records, or the file of a client that timed it, say of it.
"""
