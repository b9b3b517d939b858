"""One self-contained page of a plan, sweep or run, to send around: it loads nothing and works offline.

make.py    which kind of results a path holds
pages.py   a page for each kind
tables.py  tables that all pages have: metrics, the resolved scenario, the numbers of its profile, provenance
page.py    pages as HTML: answer, figures, tables; page.html is the template
"""
