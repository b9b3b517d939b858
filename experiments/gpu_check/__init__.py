"""Checks that need a GPU, in parts that each end within minutes: laws, tests, rates and step times on the device.

It needs torch, transformers and numpy beside the engine's core, so it also runs on a machine where nothing can be
installed.
"""
