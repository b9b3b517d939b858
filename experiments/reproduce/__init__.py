"""The papers' tables and figures, row by row: each is a function that returns a Reproduction."""

from specfleet.experiments.reproduce import (
    amusd,
    batch,
    batch_matches,
    batch_turns,
    dsde,
    dsde_figures,
    goodspeed,
    starsd,
)
from specfleet.experiments.reproduce.rows import Reproduce, name_of

IN_ORDER = (
    starsd.starsd_table1, starsd.starsd_table1_blind, starsd.starsd_table2, starsd.starsd_fig4, starsd.starsd_fig6,
    goodspeed.goodspeed_fig2, goodspeed.goodspeed_fig3, goodspeed.goodspeed_fig4,
    dsde_figures.dsde_table1, dsde.dsde_table3, dsde.dsde_table4, dsde_figures.dsde_fig2, dsde_figures.dsde_fig6,
    dsde_figures.dsde_fig7, dsde_figures.dsde_fig8, dsde.dsde_fig9,
    batch.batch_eq1, batch.batch_fig5a, batch.batch_fig5b, batch.batch_fig5c, batch.batch_fig6,
    batch_matches.batch_table1, batch.batch_table2, batch_turns.batch_table3,
    amusd.amusd_table1, amusd.amusd_fig4, amusd.amusd_fig5, amusd.amusd_a100,
    starsd.added_starsd, dsde_figures.added_dsde,
)  # fmt: skip
REPRODUCTIONS: dict[str, Reproduce] = {name_of(made): made for made in IN_ORDER}
