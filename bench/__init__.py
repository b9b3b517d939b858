"""Studies for developers of specfleet: `python -m bench` lists them. No part of the wheel.

harness.py   works, tables and aims: what all studies have in common
"""
