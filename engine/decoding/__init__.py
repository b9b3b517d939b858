"""Drafting and verification on one device, without processes, clocks or scenarios.

Begin with `decode.py` (one stream). Then read `draft.py` and `verify.py` (many streams), and `cache.py` and `rules.py`.
"""
