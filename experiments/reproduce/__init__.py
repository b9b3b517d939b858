"""The papers' tables and figures, row by row: each takes the user's inputs and returns a Reproduction."""

from specfleet.experiments.reproduce.amusd import amusd_a100, amusd_fig4, amusd_fig5, amusd_table1
from specfleet.experiments.reproduce.batch import batch_fig5a, batch_fig5b, batch_fig5c, batch_table2, batch_table3
from specfleet.experiments.reproduce.batch_matches import batch_table1
from specfleet.experiments.reproduce.batch_speedup import batch_eq1, batch_fig6
from specfleet.experiments.reproduce.dsde import dsde_fig9, dsde_table3, dsde_table4
from specfleet.experiments.reproduce.dsde_figures import (
    added_dsde,
    dsde_fig2,
    dsde_fig6,
    dsde_fig7,
    dsde_fig8,
    dsde_table1,
)
from specfleet.experiments.reproduce.estimated import estimates
from specfleet.experiments.reproduce.goodspeed import goodspeed_fig2, goodspeed_fig3, goodspeed_fig4
from specfleet.experiments.reproduce.published import published
from specfleet.experiments.reproduce.rows import Reproduce, name_of
from specfleet.experiments.reproduce.serving_engines import serving
from specfleet.experiments.reproduce.specdecode_measured import specdecode_fig1
from specfleet.experiments.reproduce.specdecode_simulated import specdecode_fig10
from specfleet.experiments.reproduce.starsd import (
    added_starsd,
    starsd_fig4,
    starsd_fig6,
    starsd_table1,
    starsd_table1_blind,
    starsd_table2,
)

IN_ORDER = (
    starsd_table1, starsd_table1_blind, starsd_table2, starsd_fig4, starsd_fig6,
    goodspeed_fig2, goodspeed_fig3, goodspeed_fig4,
    dsde_table1, dsde_table3, dsde_table4, dsde_fig2, dsde_fig6, dsde_fig7, dsde_fig8, dsde_fig9,
    batch_eq1, batch_fig5a, batch_fig5b, batch_fig5c, batch_fig6, batch_table1, batch_table2, batch_table3,
    amusd_table1, amusd_fig4, amusd_fig5, amusd_a100, added_starsd, added_dsde, estimates,
    specdecode_fig10, specdecode_fig1, serving, published,
)  # fmt: skip
REPRODUCTIONS: dict[str, Reproduce] = {name_of(made): made for made in IN_ORDER}
