"""A page as HTML: answer, figures, tables. All text is escaped here; style and script are files beside this one."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import msgspec

from experiments.report.chart import svg_of
from experiments.report.marks import Chart

HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
MOST_ROWS = 1000  # of a table, so that a page stays below its size
FOOTER = (
    "Written by <code>specfleet report</code>. It holds all that it shows; nothing is loaded. Figures: hover for "
    "values, drag to zoom, wheel after a click, double click for all. Tables: click a heading to sort."
)
LABELS = {
    "measured": "counted or timed on real hardware",
    "simulated": "by this project's simulator, from the step times of the profile",
    "equations": "by closed formulas, approximate",
    "fitted": "parameters fitted to measurements",
    "stated": "printed by a named source",
    "estimated": "by rooflines from a model's shape and a device's data sheet",
    "assumed": "nobody measured it; a plausible value",
}
Cell = str | float | None


class Grid(msgspec.Struct, frozen=True):
    """A table that can be sorted; numbers are floats, with their unit in the heading. `left_out`: rows not shown."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    left_out: int = 0


class Page(msgspec.Struct, frozen=True):
    """What a report shows: `kind` of results, the answer with how it is known, figures, tables, in that order."""

    title: str
    kind: str
    answer: tuple[tuple[str, str], ...]
    known: str
    charts: tuple[Chart, ...]
    grids: tuple[Grid, ...]


def grid(title: str, headings: Sequence[str], rows: Sequence[Sequence[Cell]], note: str = "") -> Grid:
    """Return a table of the first MOST_ROWS rows."""
    kept = tuple(tuple(row) for row in rows[:MOST_ROWS])
    return Grid(title, tuple(headings), kept, note, max(0, len(rows) - MOST_ROWS))


def html_of(page: Page) -> str:
    """Return the page, whole: the same text for the same results."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(page.title)}</title>",
        f"<style>{style}</style></head><body><main>",
        f'<header><p class="kind">{escape(page.kind)}</p><h1>{escape(page.title)}</h1></header>',
        '<section class="answer"><dl>',
        *(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in page.answer),
        f'</dl><p class="known">{escape(page.known)}</p></section>',
        '<section class="charts">',
        *(_chart(chart, number) for number, chart in enumerate(page.charts)),
        "</section>",
        *(part for one in page.grids for part in _grid(one)),
        '<details class="labels"><summary>What the labels mean</summary><dl>',
        *(f"<div><dt>{chip(label)}</dt><dd>{escape(what)}</dd></div>" for label, what in LABELS.items()),
        f"</dl></details><footer>{FOOTER}</footer>",
        f"</main><script>{script}</script></body></html>\n",
    ]  # fmt: skip
    return "\n".join(parts)


def chip(label: str) -> str:
    """Return a label as a small coloured word."""
    return f'<span class="chip {escape(label)}">{escape(label)}</span>'


def _chart(chart: Chart, number: int) -> str:
    keys = "".join(f'<li><i style="background:{colour}"></i>{escape(name)}</li>' for name, colour in _keys(chart))
    legend = f'<ul class="keys">{keys}</ul>' if keys else ""
    caption = f"<figcaption>{escape(chart.caption)}</figcaption>"
    return f"<figure><h2>{escape(chart.title)}</h2>{legend}{svg_of(chart, number)}{caption}</figure>"


def _keys(chart: Chart) -> Sequence[tuple[str, str]]:
    """Colours that no name beside a line explains."""
    return [*chart.keys, *((one.name, one.colour) for one in chart.series if one.name and not one.joined)]


def _grid(one: Grid) -> Iterator[str]:
    yield f'<section class="grid"><h2>{escape(one.title)}</h2>'
    if one.note:
        yield f"<p>{escape(one.note)}</p>"
    yield '<div class="scroll"><table class="sort"><thead><tr>'
    yield "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in one.headings)
    yield "</tr></thead><tbody>"
    for row in one.rows:
        yield f"<tr>{''.join(map(_cell, row))}</tr>"
    yield "</tbody></table></div>"
    if one.left_out:
        yield f"<p>{one.left_out} more rows are in the results, not on this page.</p>"
    yield "</section>"


def _cell(cell: Cell) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "<td>-</td>"
    if isinstance(cell, (int, float)):
        return f'<td class="n" data-v="{cell:.10g}">{cell:.4g}</td>'
    return f"<td>{chip(cell) if cell in LABELS else escape(cell)}</td>"
