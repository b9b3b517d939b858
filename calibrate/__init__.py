"""Microbenchmarks of the engine, fitted into hardware profiles."""
