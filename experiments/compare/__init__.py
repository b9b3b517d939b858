"""Comparison of runs: which quantities differ, by how much, and why. `validation.py` is what users call.

- `compare.py`: two runs, quantity by quantity. `differences.py`: keys that they do not share.
- `reruns.py`: predictions and playbacks over seeds.
- `summary.py`: the errors of many cells.
"""
