"""llama.cpp's Prometheus text (`--metrics`): acceptance, and times a token, since the start or between two scrapes."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from specfleet.calibration.readers.counts import counts_of_survivors
from specfleet.calibration.readers.load import Load, Spread, ways_of
from specfleet.calibration.readers.prometheus import Sample, add_up, between, drafts_in, number_of, read_scrapes
from specfleet.calibration.readers.recording import Recording
from specfleet.fleet.errors import InputError

PREFIX = "llamacpp:"
DRAFTS = f"{PREFIX}spec_decode_num_"
COUNTERS = ("prompt_tokens", "tokens_predicted", "tokens_predicted_seconds")
SLOTS, STEPS = f"{PREFIX}n_busy_slots_per_decode", f"{PREFIX}n_decode_total"


def read_llama_cpp_metrics(files: Sequence[Path]) -> Recording:
    """Read one scrape, with counts since the server's start, or two, with counts between them.

    The server counts no requests, so lengths are not known. Raises InputError as the reader of vLLM's metrics.
    """
    scrapes = read_scrapes(files, PREFIX)
    counts, (tokens, load) = None, _load(files, scrapes)
    if any(sample.name.startswith(DRAFTS) and number_of(sample) for sample in scrapes[-1]):
        drafts = drafts_in(files, scrapes, DRAFTS)
        surplus = tokens - drafts.drafts - drafts.accepted
        if surplus < 0:
            raise InputError(
                f"{drafts.origin}: {PREFIX}tokens_predicted_total = {tokens} is less than rounds + accepted = "
                f"{drafts.drafts} + {drafts.accepted}"
            )
        counts = counts_of_survivors(
            drafts.origin, f"drafts {drafts.since}", drafts.passed, drafts.drafts, drafts.tokens, None, 0
        )
        note = f"{surplus} of {tokens} tokens are no round's: first ones of answers, and those of steps without a draft"
        load = msgspec.structs.replace(
            load,
            tokens_per_round=counts.mean_length,
            ways=ways_of(None, load.tpot_s, None, None, None, counts.mean_length),
            notes=(note,),
        )
    return Recording(source="llama.cpp's metrics", counts=counts, load=load)


def _load(files: Sequence[Path], scrapes: Sequence[Sequence[Sample]]) -> tuple[int, Load]:
    """Return the tokens of answers, and the load: times a token of prompts and of answers, and the rows of a step."""
    names = {f"{PREFIX}{name}_total" for name in COUNTERS}
    sums = [add_up(sample for sample in scrape if sample.name in names) for scrape in scrapes]
    counted = sums[0] if len(sums) == 1 else between(sums[0], sums[1])
    if len(counted) < len(COUNTERS):
        raise InputError(
            f"{files[-1]}: lacks {PREFIX}tokens_predicted_total and its companions: start it with --metrics"
        )
    prompts, tokens, tokens_s = (counted[f"{PREFIX}{name}"] for name in COUNTERS)
    if not tokens or not tokens_s:
        raise InputError(f"{files[-1]}: {PREFIX}tokens_predicted_total = {tokens:g}; needs answers")
    tpot_s, rows = Spread(tokens_s / tokens), _rows(scrapes)
    return round(tokens), Load(
        over="since the server's start" if len(files) == 1 else "between two scrapes",
        tokens_per_s=rows / tpot_s.mean,
        running=rows,
        tpot_s=tpot_s,
        prompts_per_token=prompts / tokens,
        ways=ways_of(None, tpot_s, None, None, None, 1.0),
    )


def _rows(scrapes: Sequence[Sequence[Sample]]) -> float:
    """Return the busy slots of a step, which the server averages since its start: between scrapes, by their steps."""
    kept = [[sample for sample in scrape if sample.name in (SLOTS, STEPS)] for scrape in scrapes]
    scraped = [{sample.name: number_of(sample) for sample in samples} for samples in kept]
    steps = [values.get(STEPS, 0.0) for values in scraped]
    busy = [values.get(SLOTS, 1.0) * count for values, count in zip(scraped, steps, strict=True)]
    is_between = steps[0] < steps[-1]
    return max((busy[-1] - busy[0]) / (steps[-1] - steps[0]) if is_between else scraped[-1].get(SLOTS, 1.0), 1.0)
