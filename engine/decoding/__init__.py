"""Drafting and verification on one device, without processes, clocks or scenarios.

Begin with `draft.py` and `verify.py`. Then read `cache.py` and `rules.py`.
"""
