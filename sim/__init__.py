"""The simulated world: SimPy around the shared stations, and the analytic model beside it."""
