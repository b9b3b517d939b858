"""Estimated step times, from the shape of a model and the figures of a device.

Begin with `shape.py` (what a model's passes read and compute) and `device.py` (figures with their sources).
`passes.py` is the roofline of a pass, `profile.py` makes a profile of a target and a drafter, `shipped.py` reads the
shipped models and devices.
"""
