"""Comparison of runs: which quantities differ, by how much, and why. `validation.py` is what users call.

`compare.py`: runs and their predictions, quantity by quantity. `differences.py`: keys that two runs do not share.
`clients.py`: a run beside the file of a client that timed a server. `loads.py`: an imported load beside its simulation.
"""
