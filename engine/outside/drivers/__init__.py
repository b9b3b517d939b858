"""Programs that drive an engine, each in the environment of that engine; they import nothing of specfleet."""
