"""One file a figure: draw(table, ax); one style sheet."""
