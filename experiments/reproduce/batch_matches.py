"""Batch Speculative Decoding Done Right, table 1: texts that batches keep, and texts that they break."""

from collections.abc import Iterator
from typing import Any

from specfleet.experiments.reproduce import batch_model as model
from specfleet.experiments.reproduce.rows import PaperRow, claim, reproduces, row

TABLE_1 = model.PAPER["table_1"]
MATCHES = {"exact": "exact match, share", "partial": "partial match, share"}
OURS, BROKEN = tuple(TABLE_1)[:2], tuple(TABLE_1)[2:]
SIZES = (1, 4, 8)
PRINTED_SIZE = 4
REQUESTS, NEW_TOKENS = 24, 48
LOSSLESS, NEAR_ZERO = 0.95, 0.1


def matched() -> dict[tuple[str, int], dict[str, float]]:
    """Decode with each method at each size, and return which share matches the target's own texts."""
    from specfleet.experiments.reproduce import batch_texts as texts

    shares = {}
    with texts.one_thread():
        target = texts.load_target()
        wanted = texts.plain_texts(texts.scenario_of(model.eqspec(1), REQUESTS, NEW_TOKENS), target)
        for method in TABLE_1:
            for B in SIZES:
                rule = model.exspec if method == "ExSpec" else model.eqspec  # by which faults run, too
                scenario = texts.scenario_of(rule(B), REQUESTS, NEW_TOKENS)
                shares[method, B] = texts.matches(texts.batch_texts(scenario, target, texts.CACHES.get(method)), wanted)
    return shares


@reproduces(model.PAPER)
def batch_table1() -> Iterator[PaperRow]:
    """Table 1: exact and partial match with the target alone, of both rules and of two faults that break texts."""
    shares = matched()
    for (method, B), ours in shares.items():
        case: dict[str, Any] = {"method": method, "B": B}
        for match, quantity in MATCHES.items():
            if B == PRINTED_SIZE:
                paper, note = sum(TABLE_1[method][match]) / 300, model.PAPER["unsettled"]["other_models"]
                yield row(quantity, case, "predicted", paper, ours[match], part_of=1.0, note=note)
            else:
                yield row(quantity, case, "predicted", None, ours[match])
    for method in OURS:
        for B in SIZES:
            is_so = shares[method, B]["exact"] > LOSSLESS
            yield claim("more than 95 % of texts are equal", {"method": method, "B": B}, is_so)
    for method in BROKEN:
        alone, *batches = (shares[method, B]["exact"] for B in SIZES)
        yield claim("texts break in batches alone", {"method": method}, alone > LOSSLESS > max(batches))
        for B, exact in zip(SIZES[1:], batches, strict=True):
            yield claim("exact match is near zero", {"method": method, "B": B}, exact < NEAR_ZERO)
    for B in SIZES[1:]:
        later = shares["no cache repair", B]["partial"] > shares["no position repair", B]["partial"]
        yield claim("keys break texts later than positions do", {"B": B}, later)
