"""Results as one line, with a table below it in notebooks; texts and numbers as people see them."""

import html
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS = 60  # rows of a table in a notebook


class Shown:
    """A result with `line()` and `frame()`, for `repr` and notebooks."""

    __slots__ = ()

    def line(self) -> str:
        """Return one line: what this is and its main result."""
        raise NotImplementedError

    def frame(self) -> "pd.DataFrame":
        """Return the result as a frame."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints, where NaN and infinity are null: plain content."""
        content: dict[str, Any] = with_ends(self)
        return content

    def __repr__(self) -> str:
        return f"<{printable(self.line())}>"

    def _repr_html_(self) -> str:
        table = self.frame().to_html(index=False, border=0, float_format=number, na_rep="-", max_rows=MAX_ROWS)
        return f"<p>{html.escape(self.line())}</p>{table}"


def printable(text: str) -> str:
    """Return a text that any terminal shows as it is: other characters than lines of it, as Python writes them.

    >>> printable("a\\x1b[2J\\u202eb")
    'a\\\\x1b[2J\\\\u202eb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def number(value: float, digits: int = 4) -> str:
    """Return a number with its significant digits, below 10^9 without exponent; rounding errors around zero are 0."""
    text = f"{0.0 if abs(value) < 1e-12 else value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e9 else text


def ends(value: float, low: float, high: float) -> tuple[float, float]:
    """Return the ends of an interval as they are shown: NaN for one without width, up to rounding, which is none."""
    return (math.nan, math.nan) if high - low <= 1e-9 * abs(value) else (low, high)


def with_ends(value: Any) -> Any:
    """Return a value as content of JSON: intervals have their ends as shown, NaN and infinity are None."""
    import msgspec  # noqa: PLC0415  (`--help` needs no library)

    content = msgspec.to_builtins(value, str_keys=True)
    if isinstance(content, list):
        return [with_ends(part) for part in content]
    if not isinstance(content, dict):
        return None if isinstance(content, float) and not math.isfinite(content) else content
    if None not in map(content.get, ("value", "low", "high")):
        content["low"], content["high"] = ends(content["value"], content["low"], content["high"])
    return {key: with_ends(part) for key, part in content.items()}
