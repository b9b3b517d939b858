"""The cells: M replayed drafters for N replayed targets at two ratios Z / S, and table 1 of StarSD by its S and Z."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec

from experiments.reproduce.starsd_scaling import (
    N_COLUMNS,
    ROUNDS_PER_S,
    WAIT_S,
    local_return_s,
    remote_return_s,
    return_variation,
    service_s,
    star,
)
from fleet.chance.acceptance import Geometric, expected_committed
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import Quantiles, StepTime
from sim.predict import predict

RATIOS = (4.0, 16.0)  # t_v over S: N_full = 5 and 17
COUNTS = (1, 2, 4, 8, 16, 32, 64)
DRAFTERS = (1, 2, 4)
VIEW_DELAY_S = 0.001  # of the router's news, where there are several drafters; it is held back, and not measured
# Targets of the fleets, by their drafters, that show what this host is like: other N than those that are predicted.
CALIBRATED_ON = {1: (3, 24), 2: (3, 24), 4: (12, 24)}
SERVICE_S = 0.01
DEPTH, PROMPT_TOKENS, NEW_TOKENS = 5, 64, 40
ACCEPTANCE = Geometric(0.75)
# Steps spread evenly around their means: if all took the same time, waits would be nothing or all alike.
DRAFTS_SPREAD, VERIFICATIONS_SPREAD = Quantiles((0.0, 1.0), (0.7, 1.3)), Quantiles((0.0, 1.0), (0.5, 1.5))
DRAFT = StepTime(base_s=SERVICE_S, spread=DRAFTS_SPREAD)
PREFILL = StepTime(base_s=2 * SERVICE_S)  # of a drafter
# Prefills of targets are spread over a round, so that none of them waits because all of them began at once.
BEGINNINGS_SPREAD = Quantiles((0.0, 1.0), (0.0, 2.0))
REPLAYED = {"kind": "replayed"}


class Host(msgspec.Struct, frozen=True):
    """What is known of this host's replayed stations, and by how much their drafts end late, in seconds."""

    profile: HardwareProfile
    late_s: float


class Hosts(msgspec.Struct, frozen=True):
    """The same without a router before the drafters, and with one."""

    plain: Host
    routed: Host

    def of(self, scenario: Scenario) -> Host:
        """Return what is known of fleets like that."""
        return self.routed if settle(scenario).routed else self.plain


class Planned(msgspec.Struct, frozen=True):
    """A cell before it is run: what names it, its scenario, and the paper's numbers of it by quantity, if any.

    `late_s`: by how much its drafts will end late, as steps that are played back do, too; `host.known` says it.
    """

    case: dict[str, Any]
    scenario: Scenario
    late_s: float = 0.0
    paper: dict[str, float] = {}

    @property
    def slug(self) -> str:
        """What names it, fit for a file."""
        return "-".join(f"{key}-{value:g}".replace("/", "") for key, value in self.case.items()).replace(" ", "")


def verify_time(ratio: float) -> StepTime:
    """Time of a verification that takes `ratio` drafts."""
    return StepTime(base_s=ratio * SERVICE_S, spread=VERIFICATIONS_SPREAD)


def of_host(profile: HardwareProfile | None, ratio: float) -> HardwareProfile:
    """The stated step times, with what passes between the steps of replayed stations on this host, if that is known."""
    verify = verify_time(ratio)
    begin = StepTime(base_s=verify.base_s, spread=BEGINNINGS_SPREAD)
    times = {"draft": DRAFT, "draft_prefill": PREFILL, "verify": verify, "verify_prefill": begin}
    host = profile or HardwareProfile(name="stated", draft=DRAFT, verify=verify)
    return msgspec.structs.replace(host, **times)  # type: ignore[arg-type]


def fleet(
    profile: HardwareProfile | None, ratio: float, count: int, seconds: float, seed: int = 0, drafters: int = 1
) -> Scenario:
    """Replayed drafters for `count` replayed targets, with requests for about `seconds`.

    Several ones have a router before them, and share what they know of texts: a move costs nothing.
    """
    routed = {"count": drafters, "route": "shortest-queue", "move": "shared", "view_delay_s": VIEW_DELAY_S}
    if drafters > 1:  # as many requests as its drafters would serve in that time, each with its share of the targets
        each, sharing = max(1, count // drafters), min(drafters, count)
        of_each_drafter = fleet(profile, ratio, each, seconds, seed).workload.requests

    def of_requests(requests: int) -> Scenario:
        return make_scenario(
            {
                "name": f"replayed, Z/S = {ratio:g}, M = {drafters}, N = {count}",
                "seed": seed,
                "profile": of_host(profile, ratio),
                "acceptance": ACCEPTANCE,
                "drafters": {"depth": DEPTH, **REPLAYED} | (routed if drafters > 1 else {}),
                "verifiers": {"count": count, **REPLAYED},
                "workload": {"requests": requests, "prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS},
            }
        )

    if drafters > 1:
        return of_requests(of_each_drafter * sharing)
    rounds = NEW_TOKENS / expected_committed(ACCEPTANCE, DEPTH)
    of_each = predict(of_requests(count)).rounds_per_s * seconds / rounds / count
    return of_requests(count * max(1, round(of_each)))


def cells(hosts: Hosts, seconds: float) -> Iterator[Planned]:
    """Yield the cells of all M and N at both ratios."""
    for ratio, drafters, count in product(RATIOS, DRAFTERS, COUNTS):
        host = hosts.of(fleet(None, ratio, count, seconds, drafters=drafters))
        scenario = fleet(host.profile, ratio, count, seconds, drafters=drafters)
        yield Planned({"Z/S": ratio, "M": drafters, "N": count}, scenario)


def table1(hosts: Hosts, seconds: float) -> Iterator[Planned]:
    """Yield the columns of StarSD's table 1: its S, and verifications that make its Z with this host's links."""
    profile = hosts.plain.profile
    link_s = 2 * profile.link.latency_s
    local_s = local_return_s()
    remote_s = remote_return_s(local_s)
    variation = return_variation(local_s) * local_s / (local_s - link_s)  # links spread less than verifications
    for column, count in enumerate(N_COLUMNS):
        scenario = star(count, service_s(column), local_s - link_s, remote_s - link_s, variation)
        assert isinstance(scenario.profile, HardwareProfile)
        host = msgspec.structs.replace(profile, draft=scenario.profile.draft, verify=scenario.profile.verify)
        begin = StepTime(base_s=local_s, spread=BEGINNINGS_SPREAD)
        host = msgspec.structs.replace(host, draft_prefill=StepTime(), verify_prefill=begin)
        committed = expected_committed(ACCEPTANCE, DEPTH)
        new_tokens = round(committed * seconds * ROUNDS_PER_S[column] / count)
        yield Planned(
            {"N": count},
            msgspec.structs.replace(
                scenario,
                profile=host,
                drafters=msgspec.structs.replace(scenario.drafters, **REPLAYED),
                verifiers=msgspec.structs.replace(scenario.verifiers, **REPLAYED),
                workload=msgspec.structs.replace(scenario.workload, new_tokens=new_tokens),
            ),
            paper={"rounds_per_s": ROUNDS_PER_S[column], "wait_s": WAIT_S[column]},
        )
