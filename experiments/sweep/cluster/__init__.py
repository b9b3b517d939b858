"""Cells of a sweep on other machines, by dask: `parcels.py` is the worker's part, `send.py` ours."""
