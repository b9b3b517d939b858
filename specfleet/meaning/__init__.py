"""What things mean, for `explain`, `init` and `analytic`; and what ships."""
