"""What to run: scenario files as frozen structs, checked while they are read, and resolved once for both worlds.

Begin with `scenario.py` (the keys), then `reading.py` (from TOML) and `resolve.py` (everything that follows from it).
"""
