"""Mutation testing by cosmic-ray: would the tests notice a change of the code? `python -m tests.mutation` runs it.

A random sample of places in the files of `sample.py` is drawn, at each place one small change, and for each change
the quick tests of `tests/fleet` and `tests/sim` that execute the changed line are run, fastest first, in a copy of the
tree. A change that no test notices is either equivalent or lacks a law.
"""
