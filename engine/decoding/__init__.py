"""One device: what a model pair needs to draft and verify, without processes, clocks or scenarios.

Begin with `decode.py` (one stream), then `draft.py` and `verify.py` (many), `cache.py` and `rules.py` under them.
"""
