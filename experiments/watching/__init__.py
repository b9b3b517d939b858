"""Status of a fleet while it works.

line.py    one line that lives on a terminal, or a line a minute where there is none
page.py    the same counters as Prometheus reads them, on a port
"""
