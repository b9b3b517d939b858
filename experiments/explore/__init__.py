"""One star under sliders, on a page of this host: the equations at every move, a simulation on demand.

answers.py   sliders to a scenario; its numbers by the equations, and by one short simulation
serve.py     the page and its answers on loopback, to nobody but the page
page.html    the page, by hand: no library, nothing loaded
"""
