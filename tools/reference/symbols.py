"""Symbols of the papers that are neither a metric nor a key."""

from specfleet.fleet.records.metrics.glossary import Meaning

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
    Meaning("optimum", "tokens/round", "Goodputs of all clients whose utility no schedule within the budget exceeds, "
            "at constant acceptance. Runs have its utility, `utility_optimum`.", "x*", "max U(x) over the region X",
            "GoodSpeed, equations (1) and (2)"),
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
