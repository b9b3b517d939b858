"""The real world: torch models and ZeroMQ around the shared stations."""
