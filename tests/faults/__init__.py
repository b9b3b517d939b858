"""Real fleets under fault scripts: killed and stopped processes, lost messages. See `__main__.py`."""
