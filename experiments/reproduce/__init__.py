"""The papers' tables and figures, row by row: each takes the user's inputs and returns a Reproduction."""

from collections.abc import Callable

from experiments.reproduce.amusd import amusd_a100, amusd_fig4, amusd_table1
from experiments.reproduce.batch import batch_fig5a, batch_fig5b, batch_fig5c, batch_table2, batch_table3
from experiments.reproduce.dsde import dsde_fig9, dsde_table3, dsde_table4
from experiments.reproduce.estimated import estimates
from experiments.reproduce.goodspeed import goodspeed_fig2, goodspeed_fig3, goodspeed_fig4
from experiments.reproduce.rows import Inputs, Reproduction
from experiments.reproduce.specdecode_measured import specdecode_fig1
from experiments.reproduce.specdecode_simulated import specdecode_fig10
from experiments.reproduce.starsd import starsd_fig4, starsd_fig6, starsd_table1, starsd_table1_blind, starsd_table2

REPRODUCTIONS: dict[str, Callable[[Inputs], Reproduction]] = {
    "starsd-table1": starsd_table1,
    "starsd-table1-blind": starsd_table1_blind,
    "starsd-table2": starsd_table2,
    "starsd-fig4": starsd_fig4,
    "starsd-fig6": starsd_fig6,
    "goodspeed-fig2": goodspeed_fig2,
    "goodspeed-fig3": goodspeed_fig3,
    "goodspeed-fig4": goodspeed_fig4,
    "dsde-table3": dsde_table3,
    "dsde-table4": dsde_table4,
    "dsde-fig9": dsde_fig9,
    "batch-fig5a": batch_fig5a,
    "batch-fig5b": batch_fig5b,
    "batch-fig5c": batch_fig5c,
    "batch-table2": batch_table2,
    "batch-table3": batch_table3,
    "amusd-table1": amusd_table1,
    "amusd-fig4": amusd_fig4,
    "amusd-a100": amusd_a100,
    "estimates": estimates,
    "specdecode-fig10": specdecode_fig10,
    "specdecode-fig1": specdecode_fig1,
}
