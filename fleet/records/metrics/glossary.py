"""Meaning of every metric; metrics have the names that `measure.py` gives them.

Keys of scenarios and profiles, and quantities of the analytic model, are described where they are defined, symbols of
papers that are no metric in `tools/reference/entries.py`.
"""

import msgspec

PERCENTILES = ("p50", "p90", "p99")  # percentiles of request and round times


class Meaning(msgspec.Struct, frozen=True):
    """Meaning of a metric or a symbol.

    Keys:
        name: Name of the metric, or the symbol itself.
        unit: Its unit; in a run, a parameter follows after a comma.
        what: Definition, in full sentences.
        symbol: The papers' symbol; empty if there is none.
        equation: How it is computed, or the analytic model's equation for it.
        source: The paper, with the place in it.
        percentiles: Whether runs have its percentiles, too.
    """

    name: str
    unit: str
    what: str
    symbol: str = ""
    equation: str = ""
    source: str = ""
    percentiles: bool = False


def percentile_name(name: str, percentile: str) -> str:
    """Return the name of a metric's percentile; of its mean, the metric's own.

    >>> percentile_name("tpot_s", "p99")
    'tpot_p99_s'
    """
    return name if percentile == "mean" else f"{name.removesuffix('_s')}_{percentile}_s"


def meanings() -> dict[str, Meaning]:
    """Return the meaning of all metrics and their percentiles, by name."""
    by_name = {}
    for metric in METRICS:
        by_name[metric.name] = metric
        for percentile in PERCENTILES if metric.percentiles else ():
            name = percentile_name(metric.name, percentile)
            what = f"The {percentile[1:]}th percentile of the times that `{metric.name}` is the mean of."
            by_name[name] = Meaning(name, metric.unit, what)
    return by_name


COUNTERS = {
    "clock_mhz": ("MHz", "Graphics clock"), "power_w": ("W", "Power"),
    "utilisation": ("share of time", "Utilisation, by its own count,"),
}  # fmt: skip
"""Counters of measured devices, in a run `measured_drafter_clock_mhz` and so on: unit and meaning."""

METRICS = (
    Meaning("throughput", "tokens/s", "Tokens that all targets commit in a second, bonus tokens included.",
            "O", "O = N (E[l] + 1) / T_gamma", "StarSD, equation (11), with the bonus token"),
    Meaning("throughput_per_target", "tokens/s", "Tokens that one target commits in a second.",
            "O_i", "O_i = O / N", "StarSD, section 4.2"),
    Meaning("rounds_per_s", "rounds/s", "Drafts of all drafters in a second, late ones too; ahead, verifications.",
            "R_q", "R_q = N / T_gamma", "StarSD, appendix C.1, with one round a target and iteration"),
    Meaning("rounds_per_s_per_target", "rounds/s", "Rounds that a target verifies in a second, on average.",
            "R_p", "R_p = 1 / T_gamma", "StarSD, appendix C.1, with one round a target and iteration"),
    Meaning("load", "share of time", "Share of the time in which a drafter works, the mean over drafters.",
            "load", "N S / T_gamma", "StarSD, table 1"),
    Meaning("service_s", "s", "Time of the draft step of a round, on the drafter's clock, without delays around it.",
            "S", "S(d) = a + b d", "StarSD, equation (5)"),
    Meaning("wait_s", "s", "Time from a target's request at the drafter, or a router, to its first step: the mean.",
            "T_wait", "T_wait = max(0, (N - 1) S - Z)", "StarSD, table 1; the equation follows from (8) to (10)", True),
    Meaning("idle_gap_s", "s", "Idleness of the drafter before a draft step; 0 after a wait. T_idle is another thing.",
            source="StarSD, table 1"),
    Meaning("draft_tokens", "tokens/round", "Draft tokens of a round, the mean; of trees, levels.", "d", "", "StarSD"),
    Meaning("return_s", "s", "Time from the end of a draft step to the target's next request, without a router's wait.",
            "Z", "Z = t_c + t_v", "StarSD, equation (6)"),
    Meaning("communication_s", "s", "The return time without the draft's stay at the target: both ways over the link.",
            "t_c", "t_c = Z - t_v", "StarSD, equation (6)"),
    Meaning("verify_s", "s", "Time of a verification, on the target's clock.", "t_v", "", "StarSD, equation (6)"),
    Meaning("round_s", "s", "Time from a target's request at the drafter to its next one in the text: the mean.",
            "", "T_wait + S + Z, and the drafter's steps before the draft", percentiles=True),
    Meaning("acceptance_length", "tokens/verification", "Accepted draft tokens, not cut at a text's end.",
            "E[l(d)]", "E[l] = beta (1 - beta^d) / (1 - beta) for one beta", "StarSD, equations (2) and (3)"),
    Meaning("mean_acceptance_length", "tokens/verification", "Acceptance length with the bonus token, as vLLM counts: "
            "without tokens decoded while a draft is late. A round for which a rule drafts nothing counts as 1.",
            "E[l(d)] + 1", "(1 - beta^(d + 1)) / (1 - beta) for one beta"),
    Meaning("acceptance_rate", "share", "Accepted draft tokens over those drafted and verified; of trees, levels."),
    Meaning("power_w", "W", "Power of all devices by the profile and what each does; none where steps run at once."),
    Meaning("energy_j_per_token", "J/token", "Energy of all devices for each committed token.",
            "", "power_w / throughput", "AMUSD"),
    Meaning("measured_energy_j_per_token", "J/token", "Energy of the measured devices by their counters, for all their "
            "users, for each committed token.", source="StarSD, appendix F, for how it is read"),
    *(
        Meaning(f"measured_{side}_{name}", unit, f"{what} of the {side}s' devices, the mean over time and devices.",
                source="StarSD, figures 6 and 7; AMUSD, figure 5")
        for side in ("drafter", "target")
        for name, (unit, what) in COUNTERS.items()
    ),
    Meaning("cost_per_million_tokens", "cost/million tokens", "Cost of a million tokens by `[cost]`, and its currency.",
            "", "cost an hour / 3600 / throughput 10^6"),
    Meaning("target_load", "share of time", "Share of the time in which a target works, the mean over targets."),
    Meaning("bottleneck", "share of time", "Load of the busiest station or shared device; its name follows."),
    Meaning("requests", "requests", "Requests that completed in the window."),
    Meaning("carried_requests_per_s", "requests/s", "Requests completed in a second, by streams' cycles or by tokens."),
    Meaning("offered_requests_per_s", "requests/s", "Requests that come in a second, by the scenario or its trace."),
    Meaning("goodput_requests_per_s", "requests/s", "Requests that complete in a second and met all goals of `[slo]`.",
            "", "slo_attainment carried_requests_per_s", "vLLM, `vllm bench serve --goodput`; AIPerf, `--goodput`"),
    Meaning("slo_attainment", "share of requests", "Share of completed requests that met all goals of `[slo]`."),
    Meaning("speedup", "factor", "TPOT without speculation over the mean TPOT at the same load: a plain step where a "
            "target serves one request; else simulated, in simulations without playback.", "", "decode / tpot_s"),
    Meaning("refused", "requests", "Completed requests that a drafter refused, so that their target decoded alone."),
    Meaning("ttft_s", "s", "Time from a request's arrival to its first token, the mean over completed ones.",
            "TTFT", percentiles=True),
    Meaning("tpot_s", "s", "Time for each token after a request's first one, the mean over requests.",
            "TPOT", "(last - first) / (tokens - 1)", percentiles=True),
    Meaning("latency_s", "s", "Time from a request's arrival to its last token, the mean over completed ones.",
            percentiles=True),
    Meaning("prefix_hit_share", "share of tokens", "Share of the prompts' tokens that a target's prefix cache has when "
            "a request begins, by whole blocks.", "", "", "vLLM, prefix_cache_hits over prefix_cache_queries"),
    Meaning("drafter_prefix_hit_share", "share of tokens", "Share of the texts' tokens that a drafter's prefix cache "
            "has when a session begins there."),
    Meaning("kv_transfer_s", "s", "Time from the end of a prompt at its prefill server to its KV cache's arrival: a "
            "draft there, the wait for the link, and what no computing hides. It is a part of the TTFT."),
    Meaning("given_up", "drafts", "Drafts that did not come within `verifiers.patience_s`."),
    Meaning("alone_share", "share of time", "Share of all requests' time in which their target decoded alone."),
    Meaning("rejoin_s", "s", "Time from giving a drafter up to the stream's next verified draft, where one came."),
    Meaning("draft_share", "share of time", "Of a batch: share of its steps' time that goes to drafting."),
    Meaning("verify_share", "share of time", "Of a batch: share of its steps' time that goes to verification."),
    Meaning("realign_share", "share of time", "Of a batch: share of its steps' time that goes to padding rows anew.",
            "c_overhead", "", "Batch Speculative Decoding Done Right, equation (1)"),
    Meaning("grouped_share", "share of rounds", "Of a batch: share of its rounds that needed no realignment."),
    Meaning("block_efficiency", "tokens/step", "Of a batch: tokens that a verification commits to a sequence.",
            "BE", "", "DSDE, table I"),
    Meaning("utility", "sum of alpha-fair utilities", "What the clients' mean goodputs x_i are worth together, by the "
            "exponent `alpha` of the rule.", "U(x)", "U(x) = sum log x_i; sum x_i^(1 - alpha) / (1 - alpha) unless "
            "alpha = 1", "GoodSpeed, problem (1)"),
    Meaning("utility_optimum", "sum of alpha-fair utilities", "The optimum: the largest utility of any schedule within "
            "the budget, for clients of constant acceptance, the measured share of compared tokens. Only where "
            "all clients share each round, and each drafted a token.", "U(x*)", "max U(x) over the region X",
            "GoodSpeed, equation (2)"),
    Meaning("utility_gap", "U(x*) - U(x)", "What the utility lacks of the optimum. Below 0 by chance in short runs, "
            "or where a rule follows an acceptance that changes.", "", "utility_optimum - utility",
            "GoodSpeed, theorem 1"),
)  # fmt: skip
