"""DSDE: table III (high acceptance), table IV (low acceptance) and figure 9 (batch 64 with and without the cap).

The paper gives no signals, so a synthetic process stands in (`signals.Regional`). Its parameters follow from tables I
and II, before any policy runs: acceptance from the block efficiencies, the regions from the correlation of the mean
divergence with acceptance, the entropy's coupling from that of the entropy; step times from table I's latencies. At
temperature 1 acceptance is lower, by what static-opt takes of plain decoding's time in table III.

Table IV holds a pair of models that disagrees (Gemma) against the pair that agrees. The paper prints what static-opt,
AdaEDL and its own rule take longer on five datasets. Gemma's acceptance follows from static-opt's column, its step
times from the layers of both pairs.
"""

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from specfleet.experiments.reproduce.rows import Paper, PaperRow, fitted_if, reproduces, row
from specfleet.experiments.reproduce.runs import means, root, simulated
from specfleet.fleet.acceptance.models import committed_closed_form, rate_of_mean
from specfleet.fleet.acceptance.signals import Regional, synthetic
from specfleet.fleet.policies.dsde import LONG_TOKENS, wvir
from specfleet.fleet.records.metrics.window import Metric

PAPER = Paper("dsde")
TABLE_1, TABLE_2, TABLE_3, TABLE_4 = (PAPER[f"table_{number}"] for number in (1, 2, 3, 4))
FIGURE_9, SECTION_4D, LAYERS = (PAPER[name] for name in ("figure_9", "section_4d", "layers"))
GRID = (2, 4, 6, 8, 10)  # of static-opt, section IV-C
NEW_TOKENS = 128  # assumed
REQUESTS, SEEDS = 16, 2
ADAEDL, DYNAMIC = {"policy": "adaedl"}, {"policy": "dsde"}
CONFIDENT = "CNNDM"  # the dataset of table II, by which the Gemma drafter's entropy is set
LOWEST = "GSM8K"  # the dataset of the lowest acceptance, by which the length of answers is set
MAX_NATS = 3.0  # of the drafter's median entropy

Times = tuple[float, float]
"""Of a verification, and of a draft step."""


def static(depth: int) -> dict[str, Any]:
    """Return the policy of a static length."""
    return {"policy": "fixed", "depth": depth}


def llama_times(*tasks: str) -> Times:
    """Return the times of the pair that agrees, in verifications: latency = tokens (a + b SL) / BE, by table I.

    `tasks`: by default all of them, of which the mean counts.
    """
    ratios = []
    for task in tasks or TABLE_1:
        slow, fast = (TABLE_1[task][SL] for SL in (2, 8))
        r = fast["latency_s"] * fast["BE"] / (slow["latency_s"] * slow["BE"])  # (a + 8 b) / (a + 2 b)
        ratios.append((r - 1) / (8 - 2 * r))
    return 1.0, float(np.mean(ratios))


def table_1_acceptance() -> dict[str, float]:
    """Return the mean acceptance of each task of table I, from (1 - beta^3) / (1 - beta) at SL 2."""
    return {task: rate_of_mean(printed[2]["BE"], 2) for task, printed in TABLE_1.items()}


def token_time(beta: float, times: Times) -> float:
    """Return the time of a token at the best length of the grid: rounds of a + b SL, one acceptance for all tokens."""
    verify, draft = times
    return min((verify + draft * depth) / committed_closed_form(beta, depth) for depth in GRID)


def llama_time(factor: float = 1.0) -> float:
    """Return the mean time of a token over table I's tasks, in verifications, at `factor` times their acceptance."""
    times = llama_times()
    return float(np.mean([token_time(factor * beta, times) for beta in table_1_acceptance().values()]))


def sampled_share(temperature: float) -> float:
    """Return acceptance over that of table I, which is greedy, by static-opt's share of plain decoding's time."""
    if temperature == 0.0:
        return 1.0
    share = TABLE_3[temperature]["static-opt"] / TABLE_3[temperature]["autoregressive"]
    return root(lambda factor: llama_time(factor) - share, 0.1, 1.0)


def correlations(model: Regional, tokens: int = 60_000, window: int = 10) -> tuple[float, float]:
    """Return the correlations of a token's acceptance with its entropy, and with the mean divergence before it."""
    drawn = np.array(list(islice(synthetic(model, np.random.default_rng(0)), tokens)))
    ratio, kld, entropy = drawn.T
    before = np.convolve(kld, np.full(window, 1 / window), "valid")[:-1]
    return float(np.corrcoef(ratio, entropy)[0, 1]), float(np.corrcoef(ratio[window:], before)[0, 1])


def wvir_correlation(model: Regional, tokens: int = 60_000) -> float:
    """Return the correlation of a token's acceptance with the ratio (4) of the divergences before it."""
    ratio, kld, _ = zip(*islice(synthetic(model, np.random.default_rng(0)), tokens), strict=True)
    before = [wvir(kld[place - LONG_TOKENS : place]) for place in range(LONG_TOKENS, tokens)]
    return float(np.corrcoef(ratio[LONG_TOKENS:], before)[0, 1])


@cache
def signals(acceptance: float, temperature: float) -> Regional:
    """Return the synthetic signals of a mean acceptance: gap and coupling solve table II at this temperature."""
    paper = TABLE_2[temperature]

    def kld_surplus(gap: float) -> float:
        return correlations(Regional(acceptance, gap=gap))[1] - paper["divergence"]

    gap = root(kld_surplus, 0.0, min(acceptance, 1 - acceptance) - 0.02, 1e-3)

    def entropy_surplus(coupling: float) -> float:
        return correlations(Regional(acceptance, gap=gap, coupling=coupling))[0] - paper["entropy"]

    return Regional(acceptance, gap=gap, coupling=root(entropy_surplus, 0.0, 1.0, 1e-3))


def task_models(temperature: float) -> dict[str, Regional]:
    """Return the signals of both tasks of table I, of the pair that agrees."""
    share = sampled_share(temperature)
    return {task: signals(share * beta, temperature) for task, beta in table_1_acceptance().items()}


def run_policy(
    allocate: dict[str, Any],
    model: Regional,
    times: Times | None = None,
    batch: int = 1,
    a_row: float = 0.0,
    requests: int = REQUESTS,
) -> dict[str, Metric]:
    """Simulate a policy: means over the seeds. A round takes a + b SL, by default Llama's.

    `a_row`: time of each further row's token.
    """
    verify, draft = times or llama_times()
    steps = {"draft": {"per_token_s": draft}, "verify": {"base_s": verify, "per_row_token_s": a_row}}
    return means(
        SEEDS,
        lambda seed: simulated(
            name="dsde",
            seed=seed,
            profile={"name": "dsde", **steps},
            drafters={"place": "target"},
            verifiers={"max_num_seqs": batch, "allocate": allocate},
            acceptance=model,
            workload={"requests": requests, "streams": batch, "prompt_tokens": 100, "new_tokens": NEW_TOKENS},
        ),
    )


def latency(allocate: dict[str, Any], model: Regional, times: Times | None = None) -> float:
    """Return a policy's mean latency of a request."""
    return run_policy(allocate, model, times)["latency_s"].value


def mean_latency(allocate: dict[str, Any], models: dict[str, Regional]) -> float:
    """Return a policy's mean latency over tasks."""
    return float(np.mean([latency(allocate, model) for model in models.values()]))


@cache
def static_opt(model: Regional, times: Times | None = None) -> tuple[int, float]:
    """Return the best static length of the grid and its latency."""
    latencies = {depth: latency(static(depth), model, times) for depth in GRID}
    best = min(latencies, key=latencies.__getitem__)
    return best, latencies[best]


@reproduces(PAPER)
def dsde_table3() -> Iterator[PaperRow]:
    """Table III: latencies over static-opt, mean of the two tasks that have an acceptance in table I."""
    yield row("time of a draft token over that of a verification", {}, "fitted", None, llama_times()[1])
    for temperature, paper_s in TABLE_3.items():
        models = task_models(temperature)
        for task, model in models.items():
            case, paper = {"task": task, "temperature": temperature}, TABLE_2[temperature]
            of_entropy, of_kld = correlations(model)
            yield row("mean acceptance", case, "fitted", None, model.acceptance)
            yield row("correlation of entropy and acceptance", case, "fitted", paper["entropy"], of_entropy)
            yield row("correlation of mean divergence and acceptance", case, "fitted", paper["divergence"], of_kld)
        for task, model in models.items():
            for SL, printed in TABLE_1[task].items() if temperature == 0.0 else ():
                ours = run_policy(static(SL), model)["block_efficiency"].value
                yield row("block efficiency", {"task": task, "SL": SL}, fitted_if(SL == 2), printed["BE"], ours)
            where = {"task": task, "temperature": temperature}
            yield row("static-opt length", where, "predicted", None, static_opt(model)[0])
        of_static = sum(static_opt(model)[1] for model in models.values())
        for method, policy in (("dynamic", DYNAMIC), ("AdaEDL", ADAEDL)):
            ours = sum(latency(policy, model) for model in models.values()) / of_static
            case = {"method": method, "temperature": temperature}
            yield row("latency over static-opt", case, "predicted", paper_s[method] / paper_s["static-opt"], ours)


@reproduces(PAPER)
def dsde_fig9() -> Iterator[PaperRow]:
    """Figure 9: scaling from batch 1 to 64; the cost of a row from the uncapped number, the capped one predicted."""
    uncapped = DYNAMIC | {"cap": False}
    for temperature, paper in FIGURE_9.items():
        model = task_models(temperature)["dialogue"]
        alone = run_policy(uncapped, model)["throughput"].value

        def scaling(policy: dict[str, Any], a_row: float, model: Regional = model, alone: float = alone) -> float:
            return run_policy(policy, model, None, 64, a_row, requests=128)["throughput"].value / alone

        def surplus(a_row: float, scaling: Any = scaling, printed: float = paper["uncapped"]) -> float:
            return float(scaling(uncapped, a_row) - printed)

        a_row = root(surplus, 0.005, 0.04, 5e-4)
        case = {"temperature": temperature, "batch": 64}
        yield row("time of a further row's token, in verifications of one row", case, "fitted", None, a_row)
        yield row("scaling without the cap", case, "fitted", paper["uncapped"], scaling(uncapped, a_row))
        yield row("scaling with the cap", case, "predicted", paper["capped"], scaling(DYNAMIC, a_row))


def gemma_times() -> Times:
    """Return the times of the Gemma pair, over a Llama verification.

    Both go with the layers, as launching their kernels does; reading the weights on eight A100s would say the same of
    targets (0.5 to 0.6), and more of drafts.
    """
    (llama_target, llama_drafter), (gemma_target, gemma_drafter) = LAYERS["Llama"], LAYERS["Gemma"]
    return gemma_target / llama_target, llama_times()[1] * gemma_drafter / llama_drafter


def low_acceptance(growth: float) -> float:
    """Return the acceptance at which static-opt takes so much longer with the Gemma pair than with table I's."""
    high, gemma = llama_time(), gemma_times()
    return root(lambda beta: token_time(beta, gemma) - growth * high, 0.01, 0.99)


def low_models() -> tuple[dict[str, Regional], dict[str, Regional]]:
    """Return the Gemma pair's signals of each dataset of table IV; and the same with the entropy that AdaEDL sees."""
    models = {dataset: signals(low_acceptance(grown["static-opt"] / 100), 0.0) for dataset, grown in TABLE_4.items()}
    growth, high = TABLE_4[CONFIDENT]["AdaEDL"] / 100, mean_latency(ADAEDL, task_models(0.0))
    entropy = confident_entropy(models[CONFIDENT], growth, high)
    return models, {dataset: msgspec.structs.replace(model, entropy=entropy) for dataset, model in models.items()}


@cache
def confident_entropy(model: Regional, growth: float, high: float) -> float:
    """Return the drafter's median entropy at which AdaEDL takes `growth` times as long as `high`, in nats."""
    times = gemma_times()

    def surplus(log_entropy: float) -> float:
        confident = msgspec.structs.replace(model, entropy=float(np.exp(log_entropy)))
        return latency(ADAEDL, confident, times) / high - growth

    return float(np.exp(root(surplus, np.log(1e-4), np.log(MAX_NATS), 0.05)))


@reproduces(PAPER)
def dsde_table4() -> Iterator[PaperRow]:
    """Table IV: how much each rule loses where drafter and target disagree.

    A dataset's acceptance is set by static-opt's growth, the drafter's entropy by AdaEDL's on one dataset, and the
    length of answers by AdaEDL's on another.
    """
    times, high_models = gemma_times(), task_models(0.0)
    high = {"static-opt": float(np.mean([static_opt(model)[1] for model in high_models.values()]))}
    high |= {method: mean_latency(policy, high_models) for method, policy in (("AdaEDL", ADAEDL), ("dynamic", DYNAMIC))}
    models, confident = low_models()
    case: dict[str, Any] = {"models": "Gemma"}
    yield row("time of a draft token over that of a verification", case, "input", None, times[1] / times[0])
    yield row("median entropy of the drafter, nats", case, "fitted", None, confident[CONFIDENT].entropy)
    best = {dataset: static_opt(model, times) for dataset, model in models.items()}
    middle = float(np.median([length for length, _ in best.values()]))
    yield row("static-opt length", {"regime": "low"}, "predicted", SECTION_4D["static_opt"], middle)
    for dataset, paper in TABLE_4.items():
        yield row("mean acceptance", {"dataset": dataset}, "fitted", None, models[dataset].acceptance)
        low = {
            "static-opt": best[dataset][1],
            "AdaEDL": latency(ADAEDL, confident[dataset], times),
            "dynamic": latency(DYNAMIC, models[dataset], times),
        }
        for method, ours in low.items():
            set_by_it = method == "static-opt" or (method == "AdaEDL" and dataset in (CONFIDENT, LOWEST))
            case, growth = {"method": method, "dataset": dataset}, ours / high[method]
            yield row("growth of latency", case, fitted_if(set_by_it), paper[method] / 100, growth)
