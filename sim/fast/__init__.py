"""A compiled loop for plain stars: the same records as the SimPy path's, row for row, many times as fast.

`plain.py` says which fleets it knows; whatever else there is takes the SimPy path. `arrays.py` lays a fleet out in
arrays, `numbers.py` feeds the loop with random numbers, `kernel.py` is the loop, `table.py` makes Arrow columns of what
it wrote, and `run.py` drives it. Numba compiles it where it is installed (`pip install 'specfleet[fast]'`); without
numba the loop is plain Python, which only tests have a use for.
"""
