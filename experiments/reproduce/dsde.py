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

from specfleet.experiments.reproduce.rows import Inputs, Kind, PaperRow, assuming, row
from specfleet.experiments.reproduce.runs import acceptance_behind, root, simulated
from specfleet.fleet.acceptance.models import committed_closed_form
from specfleet.fleet.acceptance.signals import Regional, synthetic
from specfleet.fleet.policies.dsde import LONG_TOKENS, wvir
from specfleet.fleet.records.metrics.measure import combine, measure
from specfleet.fleet.records.metrics.window import Metric

# Table I: latency in s and block efficiency at SL 2 and 8.
TABLE_1 = {"code": ((21.56, 2.67), (15.92, 5.87)), "dialogue": ((22.24, 2.54), (19.27, 4.81))}
# Table II: correlation with token acceptance of the draft entropy and of the mean divergence of the last 10 steps.
TABLE_2 = {0.0: (-0.339, -0.164), 1.0: (-0.235, -0.069)}
# Its third row, to which no signal is fitted: the ratio of variances.
TABLE_2_WVIR = {0.0: 0.128, 1.0: -0.031}
# Table III: mean latency in s: autoregressive, static-opt, dynamic, AdaEDL (base 7).
TABLE_3 = {0.0: (38.41, 13.44, 13.97, 13.83), 1.0: (38.47, 18.02, 19.19, 17.64)}
# Figure 9: throughput at batch 64 over that at batch 1, without and with the cap.
FIGURE_9 = {0.0: (11.21, 12.16), 1.0: (11.92, 13.01)}

GRID = (2, 4, 6, 8, 10)  # of static-opt, section IV-C
NEW_TOKENS = 128  # not printed; see ASSUMED
REQUESTS, SEEDS = 16, 2
ADAEDL, DYNAMIC = {"policy": "adaedl"}, {"policy": "dsde"}
ASSUMED = [
    "signals are synthetic, with parameters from tables I and II; the entropy's median, 0.5 nats, is not printed",
    "a token's divergence is Pinsker's bound 2 TV^2 of its total variation, with lognormal noise of sigma 0.5",
    "table II's last 10 steps are 10 tokens, since windows of the authors' program are of tokens",
    "token acceptance spreads as Beta with concentration 1; regions last 20 tokens on average",
    (
        "constants that the paper does not print are those of its authors' program: the first draft and the longest "
        "one, when (1) is computed, a variance ratio x / 0, and AdaEDL's"
    ),
    "one sequence at a time where the paper prints no batch size",
    (
        "128 new tokens each: of 64, 128 and 256, the longest that gives AdaEDL's growth on GSM8K in table IV; its "
        "lambda and DSDE's longest draft begin anew with each answer, and have learnt the less the shorter it is"
    ),
]
SAMPLED = (
    "acceptance at temperature 1 is not printed: that of temperature 0 on both tasks, times the factor at which rounds "
    "of static-opt take table III's share of plain decoding's time, a round without drafts a token"
)
LIKE_DIALOGUE = "CNN/DM's acceptance is not printed: that of dialogue stands for it"


def step_ratio(*tasks: str) -> float:
    """Return b / a of a round's time a + b SL, from both rows of table I: latency = tokens (a + b SL) / BE.

    `tasks`: by default all of them, of which the mean counts.
    """
    ratios = []
    for (slow_s, slow_be), (fast_s, fast_be) in (TABLE_1[task] for task in tasks or TABLE_1):
        r = fast_s * fast_be / (slow_s * slow_be)  # (a + 8 b) / (a + 2 b)
        ratios.append((r - 1) / (8 - 2 * r))
    return float(np.mean(ratios))


def table_1_acceptance() -> dict[str, float]:
    """Return the mean acceptance of each task of table I, from (1 - beta^3) / (1 - beta) at SL 2."""
    return {task: acceptance_behind(rows[0][1], 2) for task, rows in TABLE_1.items()}


def token_time(beta: float, verify: float, draft: float) -> float:
    """Return the time of a token at the best length of the grid: rounds of a + b SL, one acceptance for all tokens."""
    return min((verify + draft * depth) / committed_closed_form(beta, depth) for depth in GRID)


def llama_time(factor: float = 1.0) -> float:
    """Return the mean time of a token over table I's tasks, in verifications, at `factor` times their acceptance."""
    return float(np.mean([token_time(factor * beta, 1.0, step_ratio()) for beta in table_1_acceptance().values()]))


def sampled_share(temperature: float) -> float:
    """Return acceptance over that of table I, which is greedy, by static-opt's share of plain decoding's time."""
    if temperature == 0.0:
        return 1.0
    plain_s, static_s, *_ = TABLE_3[temperature]
    return root(lambda factor: llama_time(factor) - static_s / plain_s, 0.1, 1.0)


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
    of_entropy, of_kld = TABLE_2[temperature]
    widest = min(acceptance, 1 - acceptance) - 0.02

    def kld_surplus(gap: float) -> float:
        return correlations(Regional(acceptance, gap=gap))[1] - of_kld

    gap = root(kld_surplus, 0.0, widest, 1e-3) if kld_surplus(widest) < 0 else widest

    def entropy_surplus(coupling: float) -> float:
        return correlations(Regional(acceptance, gap=gap, coupling=coupling))[0] - of_entropy

    return Regional(acceptance, gap=gap, coupling=root(entropy_surplus, 0.0, 1.0, 1e-3))


def task_models(temperature: float) -> dict[str, Regional]:
    """Return the signals of both tasks of table I, of the pair that agrees."""
    share = sampled_share(temperature)
    return {task: signals(share * beta, temperature) for task, beta in table_1_acceptance().items()}


def run_policy(
    allocate: dict[str, Any],
    model: Regional,
    batch: int = 1,
    a_row: float = 0.0,
    requests: int = REQUESTS,
    times: tuple[float, float] | None = None,
) -> dict[str, Metric]:
    """Simulate a policy: means over the seeds. A round takes 1 + b SL time units; each further row's token `a_row`.

    `times`: of a verification and of a draft step, where they are not Llama's.
    """
    verify, draft = times or (1.0, step_ratio())
    steps = {"draft": {"per_token_s": draft}, "verify": {"base_s": verify, "per_row_token_s": a_row}}
    runs = [
        simulated(
            name="dsde",
            seed=seed,
            profile={"name": "dsde", **steps},
            drafters={"place": "target"},
            verifiers={"max_num_seqs": batch, "allocate": allocate},
            acceptance=model,
            workload={"requests": requests, "streams": batch, "prompt_tokens": 100, "new_tokens": NEW_TOKENS},
        )
        for seed in range(SEEDS)
    ]
    return combine([measure(run) for run in runs])


def latency(metrics: dict[str, Metric]) -> float:
    """Return the mean latency of a request."""
    return metrics["latency_s"].value


@cache
def static_opt(model: Regional, times: tuple[float, float] | None = None) -> tuple[int, float]:
    """Return the best static length of the grid and its latency."""
    latencies = {depth: latency(run_policy({"policy": "fixed", "depth": depth}, model, times=times)) for depth in GRID}
    best = min(latencies, key=latencies.__getitem__)
    return best, latencies[best]


@assuming(
    *ASSUMED,
    "table III averages eight datasets; only two of them have printed block efficiencies, and stand for all",
    SAMPLED,
    "static-opt at temperature 1 is fitted, so quotients over it predict their numerators alone",
)
def dsde_table3(_inputs: Inputs) -> Iterator[PaperRow]:
    """Table III: latencies over static-opt, mean of the two tasks that have an acceptance in table I."""
    yield row("time of a draft token over that of a verification", {}, "fitted", None, step_ratio())
    for temperature, (_, static_s, dynamic_s, adaedl_s) in TABLE_3.items():
        models = task_models(temperature)
        for task, model in models.items():
            case = {"task": task, "temperature": temperature}
            paper_of_entropy, paper_of_kld = TABLE_2[temperature]
            of_entropy, of_kld = correlations(model)
            yield row("mean acceptance", case, "fitted", None, model.acceptance)
            yield row("correlation of entropy and acceptance", case, "fitted", paper_of_entropy, of_entropy)
            yield row("correlation of mean divergence and acceptance", case, "fitted", paper_of_kld, of_kld)
        best = {task: static_opt(model) for task, model in models.items()}
        for task, model in models.items():
            if temperature == 0.0:
                for (_, paper), depth in zip(TABLE_1[task], (2, 8), strict=True):
                    ours = run_policy({"policy": "fixed", "depth": depth}, model)["block_efficiency"].value
                    kind: Kind = "fitted" if depth == 2 else "predicted"
                    yield row("block efficiency", {"task": task, "SL": depth}, kind, paper, ours)
            where = {"task": task, "temperature": temperature}
            yield row("static-opt length", where, "predicted", None, best[task][0])
        static = sum(length for _, length in best.values())
        for name, policy, paper_s in (("dynamic", DYNAMIC, dynamic_s), ("AdaEDL", ADAEDL, adaedl_s)):
            ours = sum(latency(run_policy(policy, model)) for model in models.values())
            where = {"method": name, "temperature": temperature}
            yield row("latency over static-opt", where, "predicted", paper_s / static_s, ours / static)


@assuming(
    *ASSUMED,
    SAMPLED,
    LIKE_DIALOGUE,
    "the target verifies rows of any length without padding; drafting goes on to the longest",
)
def dsde_fig9(_inputs: Inputs) -> Iterator[PaperRow]:
    """Figure 9: scaling from batch 1 to 64; the cost of a row from the uncapped number, the capped one predicted."""
    uncapped = DYNAMIC | {"cap": False}
    for temperature, (paper_uncapped, paper_capped) in FIGURE_9.items():
        model = task_models(temperature)["dialogue"]
        alone = run_policy(uncapped, model)["throughput"].value

        def scaling(policy: dict[str, Any], a_row: float, model: Regional = model, alone: float = alone) -> float:
            return run_policy(policy, model, 64, a_row, requests=128)["throughput"].value / alone

        def surplus(a_row: float, paper: float = paper_uncapped) -> float:
            return scaling(uncapped, a_row) - paper

        a_row = root(surplus, 0.005, 0.04, 5e-4)
        case = {"temperature": temperature, "batch": 64}
        yield row("time of a further row's token, in verifications of one row", case, "fitted", None, a_row)
        yield row("scaling without the cap", case, "fitted", paper_uncapped, scaling(uncapped, a_row))
        yield row("scaling with the cap", case, "predicted", paper_capped, scaling(DYNAMIC, a_row))


# Table IV: latency of Gemma over that of Llama, in per cent: static-opt, AdaEDL, dynamic.
TABLE_4 = {"CNNDM": (178, 234, 180), "GSM8K": (231, 335, 234), "NQ": (199, 310, 229), "ShareGPT": (191, 285, 208),
           "WMT14": (194, 284, 198)}  # fmt: skip
# Layers of target and drafter: Llama-3.1-70B and 3.2-1B, Gemma-2-27B and 2B (their config.json).
LAYERS = {"Llama": (80, 16), "Gemma": (46, 26)}
CONFIDENT = "CNNDM"  # the dataset of table II, by which the Gemma drafter's entropy is set
LOWEST = "GSM8K"  # the dataset of the lowest acceptance, by which the length of answers is set
MAX_NATS = 3.0  # of the drafter's median entropy
LOW_STATIC_OPT = 2.0  # section IV-D: the best static length of most datasets of table IV


def gemma_times() -> tuple[float, float]:
    """Return a Gemma verification and a draft step, over a Llama verification.

    Both go with the layers, as launching their kernels does; reading the weights on eight A100s would say the same of
    targets (0.5 to 0.6), and more of drafts.
    """
    (llama_target, llama_drafter), (gemma_target, gemma_drafter) = LAYERS["Llama"], LAYERS["Gemma"]
    return gemma_target / llama_target, step_ratio() * gemma_drafter / llama_drafter


def low_acceptance(growth: float) -> float:
    """Return the acceptance at which static-opt takes so much longer with the Gemma pair than with table I's."""
    high, gemma = llama_time(), gemma_times()
    return root(lambda beta: token_time(beta, *gemma) - growth * high, 0.01, 0.99)


def mean_latency(policy: dict[str, Any], models: dict[str, Regional]) -> float:
    """Return a policy's mean latency over tasks."""
    return float(np.mean([latency(run_policy(policy, model)) for model in models.values()]))


def low_models() -> tuple[dict[str, Regional], float]:
    """Return the Gemma pair's signals of each dataset of table IV, and its drafter's median entropy in nats."""
    models = {dataset: signals(low_acceptance(growths[0] / 100), 0.0) for dataset, growths in TABLE_4.items()}
    return models, confident_entropy(
        models[CONFIDENT], TABLE_4[CONFIDENT][1] / 100, mean_latency(ADAEDL, task_models(0.0))
    )


def tokens_a_draft(latency: float, acceptance: float) -> float:
    """Return how many tokens the Gemma pair must draft a round for an answer to take so long, if always as many."""
    verify, draft = gemma_times()

    def surplus(tokens: float) -> float:
        committed = (1 - acceptance ** (tokens + 1)) / (1 - acceptance)
        return NEW_TOKENS * (verify + draft * tokens) / committed - latency

    return root(surplus, 0.0, 100.0)


@cache
def confident_entropy(model: Regional, growth: float, high: float) -> float:
    """Return the drafter's median entropy at which AdaEDL takes `growth` times as long as `high`, in nats."""
    times = gemma_times()

    def surplus(log_entropy: float) -> float:
        confident = msgspec.structs.replace(model, entropy=float(np.exp(log_entropy)))
        return latency(run_policy(ADAEDL, confident, times=times)) / high - growth

    most, least = np.log(MAX_NATS), np.log(1e-4)
    if surplus(most) > 0 or surplus(least) < 0:
        return float(np.exp(most if surplus(most) > 0 else least))
    return float(np.exp(root(surplus, least, most, 0.05)))


@assuming(
    *ASSUMED,
    "acceptance of the Gemma pair is not printed: set for each dataset so that static-opt grows as printed",
    "table IV's per cents are of the latency of the other pair (text), not what is added to it (caption)",
    "steps take as long as their layers say: Gemma-2-27B has 46 and 2B 26, Llama 70B 80 and 1B 16",
    (
        "the paper's reason for AdaEDL's loss is a drafter that is confident and wrong: its entropy is set by "
        f"AdaEDL's growth on {CONFIDENT}, the length of answers by that on {LOWEST}; the other datasets follow"
    ),
    (
        "what is left of AdaEDL's errors: its growth needs drafts of other lengths on other datasets, ours are "
        "about as long on all, because one entropy stands for all; neither entropies nor lengths are printed"
    ),
)
def dsde_table4(_inputs: Inputs) -> Iterator[PaperRow]:
    """Table IV: how much each rule loses where drafter and target disagree.

    A dataset's acceptance is set by static-opt's growth, the drafter's entropy by AdaEDL's on one dataset, and the
    length of answers by AdaEDL's on another.
    """
    times = gemma_times()
    high_static = float(np.mean([static_opt(model)[1] for model in task_models(0.0).values()]))
    high_of = {name: mean_latency(of, task_models(0.0)) for name, of in (("AdaEDL", ADAEDL), ("dynamic", DYNAMIC))}
    papers = {dataset: np.array(increments) / 100 for dataset, increments in TABLE_4.items()}
    models, entropy = low_models()
    case = {"models": "Gemma"}
    yield row("time of a draft token over that of a verification", case, "input", None, times[1] / times[0])
    yield row("median entropy of the drafter, nats", case, "fitted", None, entropy)
    best = {dataset: static_opt(model, times) for dataset, model in models.items()}
    middle = float(np.median([length for length, _ in best.values()]))
    yield row("static-opt length", {"regime": "low"}, "predicted", LOW_STATIC_OPT, middle)
    for dataset, paper in papers.items():
        model = models[dataset]
        yield row("mean acceptance", {"dataset": dataset}, "fitted", None, model.acceptance)
        growths = {"static-opt": best[dataset][1] / high_static}
        confident = msgspec.structs.replace(model, entropy=entropy)
        drafted: dict[str, float] = {}
        for name, policy, of in (("AdaEDL", ADAEDL, confident), ("dynamic", DYNAMIC, model)):
            metrics = run_policy(policy, of, times=times)
            growths[name] = latency(metrics) / high_of[name]
            drafted[name] = metrics["draft_tokens"].value
        for place, (name, growth) in enumerate(growths.items()):
            set_by_it = name == "static-opt" or (name == "AdaEDL" and dataset in (CONFIDENT, LOWEST))
            kind: Kind = "fitted" if set_by_it else "predicted"
            yield row("growth of latency", {"method": name, "dataset": dataset}, kind, paper[place], growth)
        needed = tokens_a_draft(float(paper[1]) * high_of["AdaEDL"], model.acceptance)
        of_adaedl = {"method": "AdaEDL", "dataset": dataset}
        yield row("draft tokens of a round", of_adaedl, "predicted", None, drafted["AdaEDL"])
        yield row("draft tokens of a round that the paper's growth needs", of_adaedl, "identity", None, needed)
