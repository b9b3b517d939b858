"""Drafters of blocks as users of vLLM measured them: rates of rounds, requests in flight, and where drafts stop to pay.

One row of each table is fitted, and the others follow from it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from scipy.optimize import brentq

from specfleet.experiments.reproduce.rows import Paper, PaperRow, Reproduction, claim, fitted_if, in_parts, row
from specfleet.fleet.acceptance.models import Geometric, rate_of_mean
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.scenario import Drafters, Measure, Scenario, Verifiers, Workload
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.sim.run import simulate

METHODS = Paper("methods", Path(__file__).parent)
DATA = ()  # the figures are beside this file
WAVES = 8  # requests of a loop, for each in flight
DIVISION = "gsm8k's rate of rounds, times the accepted length"


def reproduce(_folder: Path | None = None) -> Reproduction:
    """Hold rounds, loops and steps against published ones, one part for each thread."""
    parts: dict[str, Iterable[PaperRow]] = {
        METHODS["rates"]["thread"]: _rates(METHODS["rates"]),
        METHODS["in_flight"]["thread"]: _in_flight(METHODS["in_flight"], METHODS["rates"]["rows"]),
        METHODS["crossover"]["thread"]: _crossover(METHODS["crossover"]),
        METHODS["slots"]["thread"]: _slots(METHODS["slots"]),
    }
    return in_parts("methods", parts, METHODS.assumed())


def outside_s(rows: Iterable[dict[str, Any]]) -> float:
    """Return a request's time outside its rounds for each token of its answer, by the first data set alone.

    Of a drafter of blocks a round takes as long at each depth, so a / rate = round + a x time, for accepted length a.
    """
    of_drafter: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for entry in rows:
        accepted, per_s = entry["accepted"][0], entry["tokens_per_s"][0]
        of_drafter.setdefault((entry["target"], entry["draft"]), []).append((accepted, accepted / per_s))
    left = [np.array(found) - np.mean(found, axis=0) for found in of_drafter.values() if len(found) > 1]
    lengths, rounds_s = np.concatenate(left).T
    return float(lengths @ rounds_s / (lengths @ lengths))


def _rates(table: dict[str, Any]) -> Iterator[PaperRow]:
    """Yield tokens/s by data set; the null model divides gsm8k's by its accepted length."""
    per_token_s = outside_s(table["rows"])
    for entry in table["rows"]:
        first, first_per_s = entry["accepted"][0], entry["tokens_per_s"][0]
        round_s = first / first_per_s - first * per_token_s
        for data, accepted, per_s in zip(table["data"], entry["accepted"], entry["tokens_per_s"], strict=False):
            case = {name: entry[name] for name in ("target", "draft", "depth")} | {"data": data}
            ours, null = accepted / (round_s + accepted * per_token_s), accepted * first_per_s / first
            made = row("tokens/s", case, fitted_if(data == table["data"][0]), per_s, ours, null=null)
            yield replace(made, rule=DIVISION) if made.kind == "predicted" else replace(made, null=None)


def _in_flight(table: dict[str, Any], alone: Iterable[dict[str, Any]]) -> Iterator[PaperRow]:
    """Yield tokens/s by requests in flight, simulated on the device that the rows of one request fit best."""
    device = nearest_device(table, alone)
    profile = _profile(table, "pard-2", device)
    for number, (rows, accepted, per_s) in enumerate(table["rows"]):
        ours = looped(table, profile, rows, accepted)
        if not number:  # what the host takes beside the estimate
            profile = _slower(profile, accepted / per_s - accepted / ours)
            ours = looped(table, profile, rows, accepted)
        yield row("tokens/s", {"in flight": rows, "device": device}, fitted_if(not number), per_s, ours)


def nearest_device(table: dict[str, Any], alone: Iterable[dict[str, Any]]) -> str:
    """Return the shipped device on which the estimated rounds of one request are nearest to all methods' on gsm8k."""
    known = [entry for entry in alone if entry["target"] == table["target"] and len(entry["accepted"]) > 1]
    left_s = {}
    for device in shipped_files("devices"):
        try:
            left_s[device] = sum(_left_s(table, entry, device) ** 2 for entry in known)
        except InputError:  # too little memory
            continue
    return min(left_s, key=lambda device: left_s[device])


def _left_s(table: dict[str, Any], entry: dict[str, Any], device: str) -> float:
    """Return what a measured round takes beside its estimated passes, and its part of a request's other time."""
    profile, depth = _profile(table, entry["draft"], device), entry["depth"]
    accepted, per_s = entry["accepted"][0], entry["tokens_per_s"][0]
    context = table["prompt_tokens"] + table["new_tokens"] / 2
    outside = profile.request_s + profile.verify_prefill.mean_s(table["prompt_tokens"])
    passes_s = profile.draft.mean_s(depth, context) + profile.verify.mean_s(depth + 1, context)
    return float(accepted / per_s - passes_s - accepted * outside / table["new_tokens"])


def _profile(table: dict[str, Any], draft: str, device: str) -> HardwareProfile:
    return estimate(f"{table['target']}@{device}", f"{table['shapes'][draft]}@{device}", engine="vllm")


def _slower(profile: HardwareProfile, more_s: float) -> HardwareProfile:
    """Return a profile with so much more time for each draft, or less, as far as the host has some."""
    return replace(profile, draft=replace(profile.draft, base_s=max(profile.draft.base_s + more_s, 0.0)))


def looped(table: dict[str, Any], profile: HardwareProfile, in_flight: int, accepted: float) -> float:
    """Return tokens/s of a simulated closed loop of one server that drafts blocks, over the whole run."""
    scenario = Scenario(
        name="methods",
        profile=profile,
        acceptance=Geometric(rate_of_mean(accepted, table["depth"])),
        drafters=Drafters(kind="block", place="target", depth=table["depth"]),
        verifiers=Verifiers(max_num_batched_tokens=8192),
        workload=Workload(
            requests=WAVES * in_flight, streams=in_flight, prompt_tokens=table["prompt_tokens"],
            new_tokens=table["new_tokens"],
        ),
        measure=Measure(0.0),
    )  # fmt: skip
    return measure(simulate(scenario))["throughput"].value


def step_s(table: dict[str, Any], size: float) -> float:
    """Return the time of a plain step of so many rows: interpolated, and beyond the last as between the last two."""
    rows, times_s = np.array(table["in_flight"]), np.array(table["in_flight"]) / np.array(table["plain"])
    if size <= rows[-1]:
        return float(np.interp(size, rows, times_s))
    return float(times_s[-1] + (size - rows[-1]) * (times_s[-1] - times_s[-2]) / (rows[-1] - rows[-2]))


def _crossover(table: dict[str, Any]) -> Iterator[PaperRow]:
    """Yield tokens/s with all drafts verified: drafts in no time, and in a time by a second row."""
    fed, counts = table["depth"] + 1, np.array(table["in_flight"])
    verify_s = np.array([step_s(table, fed * rows) for rows in counts])

    def fixed(draft_s: float) -> np.ndarray:
        """Tokens/s by requests in flight, by the accepted length that the first row has with drafts of this time."""
        rounds_s = verify_s + draft_s
        per_s: np.ndarray = table["fixed"][0] * rounds_s[0] / counts[0] * counts / rounds_s
        return per_s

    draft_s = brentq(lambda time_s: fixed(time_s)[1] - table["fixed"][1], 0.0, 1.0)
    for known, time_s in ((1, 0.0), (2, draft_s)):
        law = f"drafts of {1000 * time_s:.1f} ms" if time_s else "drafts in no time"
        for number, (rows, measured) in enumerate(zip(counts, table["fixed"], strict=True)):
            case = {"in flight": int(rows), "law": law}
            yield row("tokens/s, all drafts verified", case, fitted_if(number < known), measured, fixed(time_s)[number])
        pays = counts[fixed(time_s) > np.array(table["plain"])]
        yield claim("drafts pay up to 128 in flight, and not at 256", {"law": law}, max(pays) == counts[-2])


def _slots(table: dict[str, Any]) -> Iterator[PaperRow]:
    """Yield tokens/s of slots that speculate one after the other: as of one; and whether that is a loss."""
    for draft, measured in table["drafts"].items():
        for slots, per_s, plain in zip(table["slots"], measured, table["plain"], strict=True):
            case = {"draft": draft, "slots": slots}
            yield row("tokens/s", case, fitted_if(slots == 1), per_s, measured[0])
            if slots > 1:
                yield claim("drafts are a loss", case, measured[0] < plain)
