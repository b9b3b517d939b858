"""Our programs in a terminal: exits.py how they end, printing.py what they print,
headline.py the five lines that come first of a run.

Nothing here is imported that takes long: a program is under `exits.py` before its first library comes.
"""
