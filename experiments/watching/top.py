"""A drafter and its targets, as `specfleet top` shows them: a header, and a row a target."""

from typing import Any

import msgspec
from rich.console import Console, Group
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from engine.net.status import Status, StatusRow
from experiments.watching.line import duration_text

HEADINGS = (
    "target", "sessions", "waiting", "rounds", "tokens/s", "accepted", "wait P50", "wait P90", "received", "sent",
    "heard",
)  # fmt: skip


def header_of(status: Status) -> str:
    """Return what a node does on the whole, on one line."""
    parts = [
        f"{status.node} of {status.scenario}",
        f"up {duration_text(status.time_s)}",
        f"load {_share(status.load)}",
        f"{status.waiting} waiting",
        f"S {_time(status.draft_s)}",
        f"{status.sessions} sessions of {status.targets} targets",
        f"{status.rounds} rounds",
        f"{status.tokens_per_s:.0f} tokens/s",
        f"{_share(status.acceptance)} accepted",
    ]
    return ", ".join(parts)


def cells_of(row: StatusRow) -> tuple[str, ...]:
    """Return the cells of a row, in the order of HEADINGS."""
    return (
        str(row.target + 1), str(row.sessions), str(row.waiting), str(row.rounds), f"{row.tokens_per_s:.1f}",
        _share(row.acceptance), _time(row.wait_p50_s), _time(row.wait_p90_s), decimal(row.received_bytes),
        decimal(row.sent_bytes), "-" if row.heard_s is None else f"{row.heard_s:.1f} s ago",
    )  # fmt: skip


def drawn(status: Status) -> Group:
    """Return header and table for a terminal."""
    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in status.rows:
        table.add_row(*map(Text, cells_of(row)))
    return Group(Text(header_of(status)), Text(), table)


def plain(status: Status) -> str:
    """Return header and table as text, a line a target."""
    console = Console(width=200, markup=False, emoji=False, color_system=None)
    with console.capture() as text:
        console.print(drawn(status))
    return "\n".join(line.rstrip() for line in text.get().splitlines())


def json_of(status: Status) -> dict[str, Any]:
    """Return the status as one JSON object, a row an object; targets count from 1, as people do."""
    fields = msgspec.structs.asdict(status)
    del fields["first"]
    rows = [msgspec.structs.asdict(row) | {"target": row.target + 1} for row in status.rows]
    return fields | {"rows": rows}


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _time(value_s: float | None) -> str:
    if value_s is None:
        return "-"
    return f"{1000 * value_s:.3g} ms" if value_s < 1 else f"{value_s:.3g} s"
