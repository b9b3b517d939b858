"""A page as HTML: answer, figures, tables. `page.html` and `style.css` are its template; all text is escaped here."""

import base64
import io
import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template

import msgspec
from matplotlib import rc_context
from matplotlib.figure import Figure

from specfleet.figures.style import STYLE, Drawn

TEMPLATE = Path(__file__).with_name("page.html")
MAX_ROWS = 1000  # of a table, so that a page stays small
REPRODUCIBLE = {"svg.hashsalt": "specfleet"}
LABELS = {
    "measured": "counted or timed on real hardware",
    "replayed": "timed in the engine, where stations without a model waited for stated step times",
    "simulated": "by this project's simulator, from the step times of the profile",
    "equations": "by closed formulas, approximate",
    "fitted": "parameters fitted to measurements",
    "stated": "printed by a named source",
    "estimated": "by rooflines from a model's shape and a device's data sheet",
    "assumed": "not measured; a plausible value",
}
Cell = str | float | None


class Grid(msgspec.Struct, frozen=True):
    """A table that can be sorted; numbers are floats, with their unit in the heading. MAX_ROWS rows show."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


class ReportPage(msgspec.Struct, frozen=True):
    """What a report shows: `kind` of results, the answer with how it is known, figures with captions, tables."""

    title: str
    kind: str
    answer: tuple[tuple[str, str], ...]
    sources: str
    figures: tuple[Drawn, ...]
    grids: tuple[Grid, ...]


def html_of(page: ReportPage) -> str:
    """Return the whole page: the same text for the same results."""
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(page.title),
        style=TEMPLATE.with_name("style.css").read_text(encoding="utf-8"),
        kind=escape(page.kind),
        answer=_definitions((escape(name), text) for name, text in page.answer),
        sources=escape(page.sources),
        figures="\n".join(_figure(figure, caption) for figure, caption, *_ in page.figures),
        tables="\n".join(map(_table, page.grids)),
        labels=_definitions((_chip(label), meaning) for label, meaning in LABELS.items()),
    )


def _definitions(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in pairs)


def _chip(label: str) -> str:
    return f'<span class="chip {label}">{label}</span>'


def _figure(figure: Figure, caption: str) -> str:
    """Return a figure as an image in the page itself."""
    content = io.BytesIO()
    with rc_context(STYLE | REPRODUCIBLE):
        figure.savefig(content, format="svg", metadata={"Date": None})
    source = base64.b64encode(content.getvalue()).decode()
    text = escape(caption)
    return (
        f'<figure><img alt="{text}" src="data:image/svg+xml;base64,{source}"><figcaption>{text}</figcaption></figure>'
    )


def _table(grid: Grid) -> str:
    heads = "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in grid.headings)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in grid.rows[:MAX_ROWS])
    note = f"<p>{escape(grid.note)}</p>" if grid.note else ""
    more = len(grid.rows) - MAX_ROWS
    left_out = f"<p>{more} more rows are in the results, not on this page.</p>" if more > 0 else ""
    return (
        f'<section><h2>{escape(grid.title)}</h2>{note}<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{left_out}</section>"
    )


def _cell(cell: Cell) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "<td>-</td>"
    if isinstance(cell, (int, float)):
        return f'<td class="n" data-v="{cell:.10g}">{cell:.4g}</td>'
    return f"<td>{_chip(cell) if cell in LABELS else escape(cell)}</td>"
