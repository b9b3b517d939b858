"""A page as HTML: answer, figures, tables. `page.html` and `style.css` are its template; all text is escaped here."""

import io
import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import starmap
from pathlib import Path
from string import Template

import msgspec
from matplotlib import rc_context
from matplotlib.figure import Figure

from specfleet.figures.style import STYLE, Drawn, resized
from specfleet.fleet.shown import number

TEMPLATE = Path(__file__).with_name("page.html")
LONG = 24  # characters of a text from which its column is wide
MAX_ROWS = 1000  # of a table, so that a page stays small
REPRODUCIBLE = {"svg.hashsalt": "specfleet", "svg.fonttype": "none"}
NARROW_INCHES = 3.9  # of a figure on a phone, where texts keep their size
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
    """What a report shows: `kind` of results, the answer with how it is known, figures with captions, tables.

    - `summary`: the answer in three sentences. `commands`: to copy, each with what it does.
    """

    title: str
    kind: str
    answer: tuple[tuple[str, str], ...]
    sources: str
    figures: tuple[Drawn, ...]
    grids: tuple[Grid, ...]
    summary: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()


def html_of(page: ReportPage) -> str:
    """Return the whole page: the same text for the same results."""
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(page.title),
        style=TEMPLATE.with_name("style.css").read_text(encoding="utf-8"),
        kind=escape(page.kind),
        summary="".join(f"<p>{escape(sentence)}</p>" for sentence in page.summary),
        answer=_definitions((escape(name), text) for name, text in page.answer),
        commands="".join(starmap(_command, page.commands)),
        sources=escape(page.sources),
        figures="\n".join(
            _figure(figure, caption, f"f{number}") for number, (figure, caption, *_) in enumerate(page.figures)
        ),
        tables="\n".join(map(_table, page.grids)),
        labels=_definitions((_chip(label), meaning) for label, meaning in LABELS.items()),
    )


def _definitions(pairs: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in pairs)


def _chip(label: str) -> str:
    return f'<span class="chip {label}">{label}</span>'


def _command(what: str, command: str) -> str:
    copied = f'<pre>{escape(command)}</pre><button type="button">Copy</button>'
    return f'<h3>{escape(what)}</h3><div class="command">{copied}</div>'


def _figure(figure: Figure, caption: str, name: str) -> str:
    """Return a figure as drawings in the page itself, one for each width; `name` makes their ids unique."""
    wide = _svg(figure, f"{name}w", caption)
    with resized(figure, NARROW_INCHES):
        narrow = _svg(figure, f"{name}n", caption)
    return (
        f'<figure><div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _svg(figure: Figure, name: str, caption: str) -> str:
    content = io.StringIO()
    with rc_context(STYLE | REPRODUCIBLE):
        figure.savefig(content, format="svg", metadata={"Date": None})
    text = content.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' (xmlns(:xlink)?|version)="[^"]*"', "", text)  # as HTML knows both
    text = re.sub(r'( id="|href="#|url\(#)', rf"\1{name}-", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(caption)}" ', 1)


def _table(grid: Grid) -> str:
    columns = list(zip(*grid.rows[:MAX_ROWS], strict=True))
    pairs = zip(grid.headings, columns, strict=False)
    shown = [(name, cells) for name, cells in pairs if not all(map(_is_missing, cells))]
    looks = [' class="n"' * any(isinstance(cell, (int, float)) for cell in cells) for _, cells in shown]
    heads = "".join(
        f'<th scope="col"{look}><button type="button">{escape(name)}</button></th>'
        for look, (name, _) in zip(looks, shown, strict=True)
    )
    lines = zip(*(cells for _, cells in shown), strict=True)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row, looks))}</tr>" for row in lines)
    note = f"<p>{escape(grid.note)}</p>" if grid.note else ""
    more = len(grid.rows) - MAX_ROWS
    left_out = f"<p>{more} more rows are in the results, not on this page.</p>" if more > 0 else ""
    return (
        f'<section><h2>{escape(grid.title)}</h2>{note}<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{left_out}</section>"
    )


def _is_missing(cell: Cell) -> bool:
    return cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell))


def _cell(cell: Cell, look: str) -> str:
    if _is_missing(cell):
        return f"<td{look}>-</td>"
    if isinstance(cell, (int, float)):
        return f'<td class="n" data-v="{cell:.10g}">{number(cell)}</td>'
    text = str(cell)
    return f"<td{' class=t' * (len(text) > LONG)}>{_chip(text) if text in LABELS else escape(text)}</td>"
