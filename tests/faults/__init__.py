"""Real fleets under fault scripts: processes that are killed and stopped, messages that are lost. See `__main__.py`.

kills.py    the fleets, their scripts, and what must hold
"""
