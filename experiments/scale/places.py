"""The places that are looked at, and the fleets there: all that is assumed about them stands here, and on the page."""

from typing import Any

import msgspec

from fleet.estimate.passes import Placed
from fleet.estimate.profile import estimated_profile, placed_of
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario

TARGETS_OF_DRAFTER = 10
DEPTH, BETA = 3, 0.8
PROMPT_TOKENS, NEW_TOKENS = 128, 64
IN_TURN, IN_GROUPS = "in turn", "in groups"
BITS = 8
MEMORY_SHARE = 0.9  # of a device that caches and weights may take


class Place(msgspec.Struct, frozen=True):
    """Where targets and drafters stand: the models, and a link's way between a target and a drafter.

    `target`, `draft`: MODEL@DEVICE. `spread`: of the latency around its mean. `access_bytes_per_s`: of a target's own
    link, and `port_bytes_per_s` of a drafter's, which all of its targets share. `news_s`: how old a router's news of
    the drafters is.
    """

    name: str
    target: str
    draft: str
    latency_s: float
    spread: str
    access_bytes_per_s: float
    port_bytes_per_s: float
    news_s: float
    temperature: float = 0.0


RACK = Place(
    "rack", "llama-3.1-70b@4xh100", "llama-3.2-1b@h100", latency_s=20e-6, spread="constant",
    access_bytes_per_s=100e9 / BITS, port_bytes_per_s=100e9 / BITS, news_s=20e-6,
)  # fmt: skip
REGION = Place(
    "region", "llama-3.1-70b@4xh100", "llama-3.2-1b@h100", latency_s=2e-3, spread="exponential",
    access_bytes_per_s=10e9 / BITS, port_bytes_per_s=10e9 / BITS, news_s=2e-3,
)  # fmt: skip
EDGE = Place(
    "edge", "llama-3.1-8b@jetson-orin:int4", "llama-3.2-1b@rtx-4090", latency_s=20e-3, spread="exponential",
    access_bytes_per_s=20e6 / BITS, port_bytes_per_s=10e9 / BITS, news_s=2e-3,
)  # fmt: skip
PLACES = (RACK, REGION, EDGE, msgspec.structs.replace(EDGE, name="edge, sampling", temperature=1.0))


def placed(place: Place) -> tuple[Placed, Placed]:
    """Return target and drafter, each on its devices."""
    return placed_of(place.target), placed_of(place.draft)


def fleet_of(
    place: Place, drafters: int, mode: str = IN_TURN, requests_of_target: int = 1, route: dict[str, Any] | None = None
) -> Scenario:
    """Return the scenario of TARGETS_OF_DRAFTER targets for each of so many drafters, which decode all the time.

    `mode`: whether a drafter serves one session at a time, or whoever waits. `route`: keys of a router; without any a
    target keeps its drafter.
    """
    targets = TARGETS_OF_DRAFTER * drafters
    return make_scenario(
        {
            "name": place.name,
            "profile": msgspec.to_builtins(estimated_profile(*placed(place))),
            "link": {
                "latency_s": place.latency_s, "bandwidth_bytes_per_s": place.access_bytes_per_s, "spread": place.spread,
            },
            "drafters": {
                "count": drafters, "depth": DEPTH, "group": "one" if mode == IN_TURN else "batch", **(route or {}),
            },
            "verifiers": {"count": targets},
            "acceptance": {"model": "geometric", "beta": BETA},
            "workload": {
                "requests": targets * requests_of_target, "prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS,
                "temperature": place.temperature,
            },
        }
    )  # fmt: skip
