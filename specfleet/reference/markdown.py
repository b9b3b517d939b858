"""A little Markdown."""

from collections.abc import Iterable, Sequence


def paragraph(text: str) -> str:
    """Return a text as one paragraph, whatever its line breaks were."""
    return " ".join(text.split())


def code(text: str) -> str:
    """Set a text as code; what is empty stays empty."""
    return f"`{text}`" if text else ""


def table_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; what would end a cell is escaped."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
