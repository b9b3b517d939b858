"""Shared parts of tests: small stars, an untrained pair of models, a pretended accelerator, all branches of a draw."""
