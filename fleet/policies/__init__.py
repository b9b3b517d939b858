"""The rules of the papers and our own, as frozen structs of parameters with pure methods: no clock, state or I/O.

One file for each kind of rule (`order.py`, `group.py`, `allocate.py`, `aligned.py`, `route.py`, `overlap.py` ...), and
one for each paper (`goodspeed.py`, `dsde.py`, `adaedl.py`). A rule's memory is a value that its station keeps.
"""
