"""Acceptance: models of what verification accepts, of whole rounds or token by token, and their fits to measurements.

Begin with `acceptance.py`; `tokens.py` and `signals.py` are for rules that look at more than accepted lengths.
"""
