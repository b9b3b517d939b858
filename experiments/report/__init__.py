"""One self-contained page of a plan, sweep or run, to send around: it loads nothing and works offline."""
