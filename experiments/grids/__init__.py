"""Plans held against full grids: random questions, of which every fleet is simulated with seeds of its own."""
