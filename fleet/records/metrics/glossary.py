"""Meaning of every metric and of every symbol of the papers.

Metrics have the names that `measure.py` gives them. Symbols are the papers' quantities that are not metrics. Keys of
scenarios and profiles, and quantities of the analytic model, are described where they are defined.
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
    """Return the name of a metric's percentile.

    >>> percentile_name("tpot_s", "p99")
    'tpot_p99_s'
    """
    return f"{name.removesuffix('_s')}_{percentile}_s"


def meanings() -> dict[str, Meaning]:
    """Return the meaning of all metrics and their percentiles, by name."""
    by_name = {}
    for one in METRICS:
        by_name[one.name] = one
        for percentile in PERCENTILES if one.percentiles else ():
            name = percentile_name(one.name, percentile)
            what = f"The {percentile[1:]}th percentile of the times that `{one.name}` is the mean of."
            by_name[name] = Meaning(name, one.unit, what)
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
    Meaning("rounds_per_s", "rounds/s", "Rounds that all drafters draft in a second; ahead, verifications.",
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
    Meaning("acceptance_length", "tokens/round", "Accepted draft tokens of a verification, not cut at a text's end.",
            "E[l(d)]", "E[l] = beta (1 - beta^d) / (1 - beta) for one beta", "StarSD, equations (2) and (3)"),
    Meaning("mean_acceptance_length", "tokens/round", "Acceptance length with the bonus token, as vLLM counts. "
            "vLLM leaves out rounds without a draft, which count as 1 here.",
            "E[l(d)] + 1", "(1 - beta^(d + 1)) / (1 - beta) for one beta"),
    Meaning("acceptance_rate", "share", "Accepted draft tokens over those drafted and verified; of trees, levels."),
    Meaning("power_w", "W", "Power of all devices by the profile and what each does; of steps at once, the mean."),
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
    Meaning("bottleneck", "share of time", "Load of the busiest station or shared device, whose name follows."),
    Meaning("requests", "requests", "Requests that completed in the window."),
    Meaning("carried_requests_per_s", "requests/s", "Requests completed in a second, each in parts, with its tokens."),
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
    Meaning("utility", "sum of logarithms", "What the clients' mean goodputs x_i are worth together.",
            "U(x)", "U(x) = sum log x_i", "GoodSpeed, problem (1)"),
)  # fmt: skip

SYMBOLS = (
    Meaning("t_s", "s", "Time that a drafter takes for one draft token: `draft.per_token_s` of a profile.", "t_s",
            "S(d) = d t_s", "StarSD, equation (5)"),
    Meaning("l", "tokens", "Acceptance length of a round: how many leading draft tokens the target accepts.", "l",
            "0 <= l <= d", "StarSD, lemma 3.1"),
    Meaning("alpha", "share", "Acceptance rate of a client: the probability that the target accepts a draft token, as "
            "GoodSpeed and Batch Speculative Decoding Done Right write it; StarSD's is beta.", "alpha",
            "alpha = E[min(1, p/q)]", "GoodSpeed"),
    Meaning("alpha-hat", "share", "The estimate of a client's acceptance rate, smoothed with weight eta.", "alpha-hat",
            "alpha-hat <- (1 - eta) alpha-hat + eta (mean ratio)", "GoodSpeed, equation (3)"),
    Meaning("x_i", "tokens/round", "Goodput of client i in a round: its accepted tokens and the target's own.", "x_i",
            "x-hat = (1 - alpha^(S_i + 1)) / (1 - alpha)", "GoodSpeed, section III-B"),
    Meaning("X", "tokens/round", "The estimate of a client's goodput, smoothed with weight beta.", "X",
            "X <- (1 - beta) X + beta x", "GoodSpeed, equation (4)"),
    Meaning("S_i", "tokens", "Speculation length that the verifier grants to client i; all together at most C.", "S_i",
            "maximise sum x-hat_i(S_i) / X_i", "GoodSpeed, equation (5)"),
    Meaning("SL_max", "tokens", "The longest length of a sequence, set at the end of its calibration.", "SL_max",
            "SL_A,max (1 + mean KLD / (peak KLD + epsilon))", "DSDE, equation (1)"),
    Meaning("SL-hat", "tokens", "The predicted length of a sequence's next draft.", "SL-hat",
            "(1 - SF WVIR) (SL_max - SL_min) + SL_min, at least SL_min", "DSDE, equations (2) and (8)"),
    Meaning("SF", "factor", "Scale factor: how far drafter and target disagreed in the last step.", "SF",
            "SF = exp(2 mean KLD) - 1", "DSDE, equation (3)"),
    Meaning("WVIR", "factor", "How much the divergence varied of late, over how much it varied for longer; 20 where "
            "that is nearly 0.", "WVIR", "Var_w(short) / Var_w(long)", "DSDE, equations (4) to (7)"),
    Meaning("p", "probability", "The target's probability of a token.", "p"),
    Meaning("q", "probability", "The drafter's probability of a token.", "q"),
    Meaning("KLD", "nats", "Divergence of the drafter's distribution from the target's at a place: KL(p||q).", "KLD",
            "sum p log(p / q)", "DSDE"),
    Meaning("H", "nats", "Entropy of the distribution that a draft token was drawn from.", "H", "-sum q log q",
            "AdaEDL"),
    Meaning("epoch", "number", "A stretch of a session between two outcomes that made earlier drafts worthless; "
            "messages of another epoch are stale."),
)  # fmt: skip
