"""The papers' tables and figures, row by row: each takes this host's profile, or None, and returns a Reproduction."""

from collections.abc import Callable

from experiments.reproduce.rows import Reproduction
from experiments.reproduce.starsd_draft_time import starsd_fig6, starsd_table2
from experiments.reproduce.starsd_scaling import starsd_fig4, starsd_table1, starsd_table1_blind
from specfleet.profile import HardwareProfile

REPRODUCTIONS: dict[str, Callable[[HardwareProfile | None], Reproduction]] = {
    "starsd-table1": starsd_table1,
    "starsd-table1-blind": starsd_table1_blind,
    "starsd-table2": starsd_table2,
    "starsd-fig4": starsd_fig4,
    "starsd-fig6": starsd_fig6,
}
