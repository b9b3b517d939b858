"""A star under sliders, on a page of this host: the equations at every move, a simulation on demand."""
