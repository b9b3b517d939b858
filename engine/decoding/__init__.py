"""Drafting and verification on one device, without processes, clocks or scenarios.

Begin with `decode.py`. Then read `draft.py` and `verify.py`, and `cache.py` and `rules.py`.
"""
