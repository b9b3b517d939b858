"""The simulator: shared stations in simulated time (SimPy), a compiled loop, and analytic models."""
