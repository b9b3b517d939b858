"""Our programs in a terminal: what they print, and how they end.

Nothing here is imported that takes long: a program is under `exits.py` before its first library comes.
"""
