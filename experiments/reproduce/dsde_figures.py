"""DSDE, table I and figures 2, 6, 7 and 8: by the model of `dsde.py`, fitted as there; figures print no numbers."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from specfleet.experiments.reproduce import dsde
from specfleet.experiments.reproduce.rows import Kind, PaperRow, claim, fitted_if, reproduces, row
from specfleet.fleet.acceptance.signals import Regional, synthetic

CLOSE, LOW_CLOSE = 0.05, 0.2
NOTICEABLE, SHARP = 0.01, 0.1


@reproduces(dsde.PAPER)
def dsde_table1() -> Iterator[PaperRow]:
    """Table I: what length 8 gains over 2 on both tasks; block efficiency at 8 counts in dsde-table3."""
    for task, other in zip(dsde.TABLE_1, reversed(dsde.TABLE_1), strict=True):
        model, printed = dsde.signals(dsde.table_1_acceptance()[task], 0.0), dsde.TABLE_1[task]
        runs = {SL: dsde.run_policy(dsde.static(SL), model, dsde.llama_times(other)) for SL in printed}
        for SL, metrics in runs.items():
            kind: Kind = "fitted" if SL == 2 else "identity"
            ours = metrics["block_efficiency"].value
            yield row("block efficiency", {"task": task, "SL": SL}, kind, printed[SL]["BE"], ours)
        paper = printed[8]["latency_s"] / printed[2]["latency_s"]
        ours = runs[8]["latency_s"].value / runs[2]["latency_s"].value
        yield row("latency at SL 8 over SL 2", {"task": task}, "predicted", paper, ours)


@reproduces(dsde.PAPER)
def dsde_fig2() -> Iterator[PaperRow]:
    """Figure 2: the best speculation length fluctuates from iteration to iteration."""
    weak = max(abs(printed[of]) for printed in dsde.TABLE_2.values() for of in ("entropy", "divergence"))
    for task, model in dsde.task_models(0.0).items():
        lengths = best_lengths(model)
        change = float(np.abs(np.diff(lengths)).mean() / lengths.mean())
        following = float(np.corrcoef(lengths[:-1], lengths[1:])[0, 1])
        case = {"task": task}
        yield row("best length, tokens", case, "predicted", None, float(lengths.mean()))
        yield row("change from iteration to iteration, share of the mean", case, "predicted", None, change)
        yield row("correlation with the next iteration's", case, "predicted", None, following)
        yield claim("the best length changes dramatically", case, change > 0.5)
        yield claim("the best length hardly predicts the next", case, abs(following) < weak)


def best_lengths(model: Regional, tokens: int = 20_000) -> Any:
    """Return the best length of each iteration over a text: what is accepted until the first mismatch; an array."""
    rng = np.random.default_rng(0)
    accepted = [rng.random() < token.ratio for token in islice(synthetic(model, rng), tokens)]
    lengths, place = [], 0
    while place + dsde.GRID[-1] < tokens:
        ahead = accepted[place : place + dsde.GRID[-1]]
        lengths.append(ahead.index(False) if False in ahead else len(ahead))
        place += lengths[-1] + 1
    return np.array(lengths)


@reproduces(dsde.PAPER)
def dsde_fig6() -> Iterator[PaperRow]:
    """Figure 6: latency by static length and by AdaEDL's longest draft; the dynamic rule has no such parameter."""
    for temperature in dsde.TABLE_3:
        models = dsde.task_models(temperature)
        curves = {
            "static": np.array([dsde.mean_latency(dsde.static(SL), models) for SL in dsde.GRID]),
            "AdaEDL": np.array([dsde.mean_latency(dsde.ADAEDL | {"base": SL}, models) for SL in dsde.GRID]),
        }
        best = float(curves["static"].min())
        case: dict[str, Any] = {"temperature": temperature}
        for method, curve in curves.items():
            for SL, ours in zip(dsde.GRID, curve / best, strict=True):
                where = case | {"method": method, "SL": SL}
                yield row("latency over the best static length", where, "predicted", None, ours)
        dynamic = dsde.mean_latency(dsde.DYNAMIC, models) / best
        yield row("latency over the best static length", case | {"method": "dynamic"}, "predicted", None, dynamic)
        worse = {method: float(curve.max() / curve.min()) - 1 for method, curve in curves.items()}
        bends = np.sign(np.diff(curves["static"])).tolist()
        yield claim("static latency is U-shaped", case, bends == sorted(bends) and bends[0] < 0 < bends[-1])
        yield claim("static latency degrades sharply", case, worse["static"] > SHARP)
        yield claim("AdaEDL depends on its length less than static does", case, worse["AdaEDL"] < worse["static"])
        yield claim("AdaEDL depends on its length noticeably", case, worse["AdaEDL"] > NOTICEABLE)


@reproduces(dsde.PAPER)
def dsde_fig7() -> Iterator[PaperRow]:
    """Figure 7: on every dataset the dynamic rule takes about as long as static-opt and AdaEDL."""
    for task, model in dsde.task_models(0.0).items():
        dynamic, adaedl = dsde.latency(dsde.DYNAMIC, model), dsde.latency(dsde.ADAEDL, model)
        for other, latency in (("static-opt", dsde.static_opt(model)[1]), ("AdaEDL", adaedl)):
            yield row(f"latency of dynamic over {other}", {"task": task}, "predicted", None, dynamic / latency)
            yield claim(f"dynamic matches {other}", {"task": task}, dynamic / latency < 1 + CLOSE)


@reproduces(dsde.PAPER)
def dsde_fig8() -> Iterator[PaperRow]:
    """Figure 8: with models that disagree, the dynamic rule stays close to static-opt, and AdaEDL does not."""
    (models, confident), times = dsde.low_models(), dsde.gemma_times()
    for dataset, model in models.items():
        best = dsde.static_opt(model, times)[1]
        dynamic = dsde.latency(dsde.DYNAMIC, model, times) / best
        adaedl = dsde.latency(dsde.ADAEDL, confident[dataset], times) / best
        case, fits = {"dataset": dataset}, dataset in (dsde.CONFIDENT, dsde.LOWEST)
        paper, note = None, ""
        if dataset == dsde.CONFIDENT:
            paper, note = dsde.SECTION_4D["dynamic_on_CNNDM"], dsde.PAPER["unsettled"]["other_number"]
        quantity = "latency over static-opt"
        yield row(quantity, case | {"method": "dynamic"}, "predicted", paper, dynamic, note=note)
        yield row(quantity, case | {"method": "AdaEDL"}, fitted_if(fits), None, adaedl)
        yield claim("dynamic stays close to static-opt", case, dynamic < 1 + LOW_CLOSE)
        if not fits:
            yield claim("AdaEDL loses substantially", case, adaedl > 1 + LOW_CLOSE)


@reproduces(dsde.PAPER)
def added_dsde() -> Iterator[PaperRow]:
    """Table III's speed-ups over plain decoding, and table II's third row, to which no signal is fitted."""
    for temperature, paper_s in dsde.TABLE_3.items():
        models, case = dsde.task_models(temperature), {"temperature": temperature}
        latencies = {"static-opt": float(np.mean([dsde.static_opt(model)[1] for model in models.values()]))}
        for method, policy in (("dynamic", dsde.DYNAMIC), ("AdaEDL", dsde.ADAEDL)):
            latencies[method] = dsde.mean_latency(policy, models)
        for method, latency in latencies.items():
            kind: Kind = fitted_if(temperature > 0) if method == "static-opt" else "identity"
            paper = paper_s["autoregressive"] / paper_s[method]
            yield row(f"speed-up of {method}", case, kind, paper, dsde.NEW_TOKENS / latency)
        paper, r = dsde.TABLE_2[temperature]["WVIR"], dsde.wvir_correlation(models["dialogue"])
        yield row("correlation of WVIR and acceptance", case, "predicted", paper, r, part_of=1.0)
