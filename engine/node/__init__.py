"""A node: one station with its worker, its executor, its models and its devices."""
