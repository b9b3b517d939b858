"""The compiled loop for stars and serving targets: the same records as the SimPy path, many times as fast.

1. `choice.py` selects the path, and says what the loop supports; it works without numba.
2. `serving_arrays.py` lays a fleet out in arrays of the records of `layout.py`, with the links of `arrays.py`;
   `numbers.py` draws random numbers.
3. `serving.py` is the loop, compiled by numba (`pip install 'specfleet[fast]'`). It calls `serving_rows.py`,
   `serving_ends.py`, `serving_drafters.py` and `serving_times.py`; `events.py` has its heap and its messages. `run.py`
   drives it. Where texts share something, it is compiled once more, with `serving_cache.py`; `sharing_arrays.py` lays
   that out.
4. `logged.py`, compiled, makes columns from its log, the input of metrics; `table.py` makes the event table from them.
5. `sums.py` sums in the loop what metrics need; `streamed.py` makes the tables of long simulations from that.
"""
