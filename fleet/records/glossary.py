"""What every metric and every symbol of the papers means: the one place where that is written down.

Metrics are those of `metrics.py`, by the names that it returns; symbols are those that are no metric. The keys of
scenarios and profiles, and the quantities of the analytic model, are described where they are defined.
"""

import msgspec

PERCENTILES = (50, 90, 99)  # of times of requests and of rounds


class Meaning(msgspec.Struct, frozen=True):
    """What a metric or a symbol means.

    Keys:
        name: Name of the metric, or the symbol itself.
        unit: Its unit; what follows it in a run after a comma is a parameter.
        what: What it is, in full sentences.
        symbol: How the papers write it; empty where they do not.
        equation: How it is computed, or what the analytic model says of it.
        source: Where it comes from: the paper with the place in it.
    """

    name: str
    unit: str
    what: str
    symbol: str = ""
    equation: str = ""
    source: str = ""


def _percentiles(name: str, what: str, *rest: str) -> list[Meaning]:
    """Percentiles of a time."""
    return [
        Meaning(f"{name}_p{percent}_s", "s", f"The {percent}th percentile of {what}.", *rest) for percent in PERCENTILES
    ]


def _latencies() -> tuple[Meaning, ...]:
    """Mean and percentiles of the three times of a request."""
    times = {
        "ttft": ("the time from a request's arrival to its first token", "TTFT", ""),
        "tpot": ("the time for each token after a request's first one", "TPOT", "(last - first) / (tokens - 1)"),
        "latency": ("the time from a request's arrival to its last token", "", ""),
    }
    over = "over the requests that completed in the window"
    return tuple(
        meaning
        for name, (what, *rest) in times.items()
        for meaning in (
            Meaning(f"{name}_mean_s", "s", f"The mean of {what}, {over}.", *rest),
            *_percentiles(name, f"{what}, {over}", *rest),
        )
    )


METRICS = (
    Meaning(
        "throughput", "tokens/s",
        "Tokens that all targets commit in a second, the target's own token of each round included; what lies beyond a "
        "request's length is dropped.",
        "O", "O = N (E[l] + 1) / T_gamma", "StarSD, equation (11), with the bonus token",
    ),
    Meaning(
        "throughput_per_target", "tokens/s",
        "The same for one target, on average. Where every request is a stream of its own, targets are places: the "
        "verifiers, or the rows of a batch.",
        "O_i", "O_i = O / N", "StarSD, section 4.2",
    ),
    Meaning(
        "fairness", "Jain index",
        "How evenly the targets share the committed tokens x_i: 1 if all get the same, 1 / N if one gets everything.",
        "J", "J = (sum x_i)^2 / (N sum x_i^2)", "Jain, Chiu and Hawe 1984",
    ),
    Meaning(
        "accepted_throughput", "tokens/s",
        "Accepted draft tokens that all targets commit in a second, without the target's own: StarSD's own count.",
        "O", "O = N E[l] / T_gamma", "StarSD, equation (11)",
    ),
    Meaning(
        "rounds_per_s", "rounds/s",
        "Rounds that all drafters finish drafting in a second; where drafting goes on ahead, verifications.",
        "R_q", "R_q = N / T_gamma", "StarSD, appendix C.1, with one round a target and iteration",
    ),
    Meaning(
        "rounds_per_s_per_target", "rounds/s", "Rounds that a target verifies in a second, on average.",
        "R_p", "R_p = 1 / T_gamma", "StarSD, appendix C.1, with one round a target and iteration",
    ),
    Meaning("rounds", "rounds", "How many rounds were verified in the window."),
    Meaning(
        "load", "share of time",
        "Share of the time in which a drafter works, the mean over drafters; in a batch, in which it drafts.",
        "load", "N S / T_gamma", "StarSD, table 1",
    ),
    Meaning(
        "iteration_idle_s", "s", "A drafter's idle time in an iteration, in which each target has one round.",
        "T_idle", "T_idle = max(0, Z - (N - 1) S)", "StarSD, equation (9)",
    ),
    Meaning(
        "iteration_s", "s", "Time of an iteration, in which each target has one round.",
        "T_gamma", "T_gamma = N S + T_idle", "StarSD, equations (8) and (10)",
    ),
    Meaning(
        "service_s", "s", "Time of the draft step that a round is drafted in, on the drafter's clock, without its "
        "overhead, which the equations' S includes.", "S", "S(d) = a + b d", "StarSD, equation (5)",
    ),
    Meaning(
        "wait_s", "s", "Time from the arrival of a target's request at the drafter until its step, or the prefill or "
        "warm-up before it, begins; what a router holds a request for counts, too.",
        "T_wait", "T_wait = max(0, (N - 1) S - Z)",
        "StarSD, table 1; the equation follows from (8) to (10)",
    ),
    *_percentiles("wait", "`wait_s` over rounds"),
    Meaning(
        "idle_gap_s", "s",
        "Idleness of the drafter before a draft step, the mean over rounds; 0 for those that waited. Another thing "
        "than the idle time of an iteration, T_idle.", "", "", "StarSD, table 1",
    ),
    Meaning("request_bytes", "bytes", "Size on the wire of a target's request for a draft, the mean over rounds."),
    Meaning("draft_bytes", "bytes", "Size on the wire of a draft, its distributions included, the mean over rounds."),
    Meaning("draft_tokens", "tokens/round", "Draft tokens of a round, on average.", "d", "", "StarSD"),
    Meaning(
        "return_s", "s", "Time from the end of a draft step until the drafter has the target's next request, "
        "without what a router held that for.",
        "Z", "Z = t_c + t_v", "StarSD, equation (6)",
    ),
    Meaning(
        "communication_s", "s", "The return time without the draft's stay at the target: both ways over the link.",
        "t_c", "t_c = Z - t_v", "StarSD, equation (6)",
    ),
    Meaning("verify_s", "s", "Time of a verification, on the target's clock.", "t_v", "", "StarSD, equation (6)"),
    Meaning(
        "round_s", "s", "Time of a round: from a target's request at the drafter until its next one in the same text.",
        "", "T_wait + S + Z, and the drafter's steps before the draft",
    ),
    *_percentiles("round", "`round_s` over rounds"),
    Meaning(
        "acceptance_length", "tokens/round",
        "Accepted draft tokens of a verification, on average; nothing is cut at the request's length.",
        "E[l(d)]", "E[l] = beta (1 - beta^d) / (1 - beta) for one beta", "StarSD, equations (2) and (3)",
    ),
    Meaning(
        "mean_acceptance_length", "tokens/round", "The same with the target's own token, as vLLM counts.",
        "E[l(d)] + 1", "(1 - beta^(d + 1)) / (1 - beta) for one beta",
    ),
    Meaning("acceptance_rate", "share", "Accepted draft tokens over all that were drafted and verified."),
    Meaning("draft_cache_peak_bytes", "bytes", "The most that all drafters' caches hold at a time, by `[memory]`."),
    Meaning("power_w", "W", "Electrical power of all devices, by the profile's powers and what each device did."),
    Meaning(
        "energy_j_per_token", "J/token", "Energy of all devices for each committed token.", "", "power_w / throughput",
        "AMUSD",
    ),
    Meaning("measured_power_w", "W", "Electrical power of the devices that were measured in the run, by their energy "
            "counters (NVML, RAPL), whoever used them."),
    Meaning(
        "measured_energy_j_per_token", "J/token", "Energy of the devices that were measured, for each committed token.",
        "", "measured_power_w / throughput", "StarSD, appendix F, for how it is read",
    ),
    Meaning(
        "energy_kwh_per_million_tokens", "kWh/million tokens", "The same energy for a million committed tokens.", "",
        "energy_j_per_token / 3.6",
    ),
    Meaning(
        "cost_per_million_tokens", "cost/million tokens",
        "What a million committed tokens cost: the prices of `[cost]` for all devices over the window, whether they "
        "work or not, over the tokens that were committed in it. After the comma: what prices are in.",
        "", "cost an hour / 3600 / throughput 10^6",
    ),
    Meaning(
        "target_load", "share of time", "Share of the time in which a target works, the mean over targets.",
    ),
    Meaning(
        "bottleneck", "share of time",
        "Load of the busiest station, or of the busiest device that several stations share; its name is after the "
        "comma. Of many like stations it is the one that chance kept busiest.",
    ),
    Meaning("requests", "requests", "How many requests completed in the window."),
    Meaning("carried_requests_per_s", "requests/s", "Requests that complete in a second."),
    Meaning(
        "offered_requests_per_s", "requests/s",
        "Requests that come in a second, as the scenario states it, or as the trace had them on average. What is "
        "carried stays below it in a short run, whose end is counted until the last request is complete, and where "
        "it is more than the fleet can carry.",
    ),
    Meaning(
        "goodput_requests_per_s", "requests/s", "Requests that complete in a second and met all goals of `[slo]`.",
        "", "slo_attainment carried_requests_per_s", "vLLM, `vllm bench serve --goodput`; AIPerf, `--goodput`",
    ),
    Meaning(
        "slo_attainment", "share of requests",
        "Share of the requests that completed in the window which met all goals of `[slo]`. A request of one token "
        "has no time for a token after the first, and meets that goal.",
    ),
    Meaning(
        "speedup", "factor",
        "How many times as fast a user's tokens come as by plain decoding: the time of a plain decoding step of a "
        "target that serves one request alone, in the middle of a text, by the profile or `verifiers.decode`, over "
        "the mean TPOT. Below 1 speculation, or the wait for others, costs more than it gains.",
        "", "decode / tpot_mean_s",
    ),
    Meaning("refused", "requests", "How many of them a drafter refused, so that their target decoded alone."),
    *_latencies(),
    Meaning("given_up", "drafts", "How many drafts did not come within `verifiers.patience_s`, so that their target "
            "went on alone."),
    Meaning("alone_share", "share of time", "Share of the time of all requests, from arrival to last token, in which "
            "their target decoded alone, because its drafter was given up or had refused."),
    Meaning("alone_token_share", "share of tokens", "Share of the committed tokens that a target decoded alone."),
    Meaning("alone_tokens_per_s", "tokens/s", "Tokens that a target commits in a second while it decodes alone, for "
            "one session."),
    Meaning("rejoin_s", "s", "Time from giving a drafter up until a stream's next draft is verified, the mean over "
            "those that came back."),
    Meaning("draft_share", "share of time", "Of a batch: share of the time of its steps that goes to drafting."),
    Meaning("verify_share", "share of time", "Of a batch: share of the time of its steps that goes to verification."),
    Meaning(
        "realign_share", "share of time",
        "Of a batch: share of the time of its steps that goes to unpadding and padding rows anew.",
        "c_overhead", "", "Batch Speculative Decoding Done Right, equation (1)",
    ),
    Meaning("grouped_share", "share of rounds", "Of a batch: share of its rounds that needed no realignment."),
    Meaning(
        "block_efficiency", "tokens/step",
        "Of a batch: tokens that a verification commits to a sequence, on average, cut at the request's length.",
        "BE", "", "DSDE, table I",
    ),
    Meaning(
        "blocked_share", "share of time",
        "Of a batch: share of the time between the first and the last step of a request in which its station served "
        "others (head-of-line blocking).",
    ),
    Meaning("rows_per_step", "rows", "Of a batch: rows that share a verification, on average."),
    Meaning(
        "utility", "sum of alpha-fair utilities",
        "What the mean goodputs x_i, in tokens a round, are worth together, by the fairness a of the rule that grants "
        "lengths.",
        "U(x)", "U(x) = sum log x_i at a = 1, else sum x_i^(1 - a) / (1 - a)", "GoodSpeed, problem (1)",
    ),
    Meaning(
        "utility_gap", "U(x*) - U(x)",
        "What is missing to the best utility that any schedule within the budget reaches, for clients whose acceptance "
        "is constant at what the run showed.",
        "U(x*) - U(x)", "", "GoodSpeed, problem (1)",
    ),
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
            "maximise sum X_i^-a x-hat_i(S_i)", "GoodSpeed, equation (5)"),
    Meaning("SL_max", "tokens", "The longest length of a sequence, set by its calibration steps.", "SL_max",
            "SL_A,max (1 + mean KLD / (peak KLD + epsilon))", "DSDE, equation (1)"),
    Meaning("SL-hat", "tokens", "The predicted length of a sequence's next draft.", "SL-hat",
            "(1 - SF WVIR) (SL_max - SL_min) + SL_min, at least SL_min", "DSDE, equations (2) and (8)"),
    Meaning("SF", "factor", "Scale factor: how far drafter and target disagreed in the last step.", "SF",
            "SF = exp(2 mean KLD) - 1", "DSDE, equation (3)"),
    Meaning("WVIR", "factor", "How much the divergence varied of late, over how much it varied for longer; 1 where it "
            "never varied.", "WVIR", "Var_w(short) / Var_w(long)", "DSDE, equations (4) to (7)"),
    Meaning("p", "probability", "The target's probability of a token.", "p"),
    Meaning("q", "probability", "The drafter's probability of a token.", "q"),
    Meaning("KLD", "nats", "Divergence of the drafter's distribution from the target's at a place: KL(p||q).", "KLD",
            "sum p log(p / q)", "DSDE"),
    Meaning("H", "nats", "Entropy of the distribution that a draft token was drawn from.", "H", "-sum q log q",
            "AdaEDL"),
    Meaning("epoch", "number", "A stretch of a session between two outcomes that made earlier drafts worthless; "
            "messages of another epoch are stale."),
)  # fmt: skip
