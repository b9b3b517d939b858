"""One self-contained page of a plan, sweep, run or demo, to send around: no request leaves it, and it works offline.

make.py        which kind of results a path holds, and the page as bytes
of_plan.py     a plan's page
of_sweep.py    a sweep's page
of_run.py      a run's page
of_demo.py     a demo's page
settled.py     tables that all have: the settled scenario, the numbers of its profile with their labels, provenance
page.py        pages as HTML: answer, figures, tables; all text is escaped here
chart.py       figures as SVG: marks.py what they are made of, axes.py ticks and scales
page.css, page.js  how a page looks, and what it does: hover, zoom, sort
"""
