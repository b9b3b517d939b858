"""Acceptance models, by round or by token, and their fits to measurements.

Begin with `models.py`; `tokens.py` and `signals.py` serve rules that need more than accepted lengths.
"""
