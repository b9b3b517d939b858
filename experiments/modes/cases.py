"""The modes: batch rules, kinds and shapes of drafts, length rules, fleets; each with the cases that are predicted."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from experiments.batch_rules import OURS, RULES, rule_of
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario

SIZES = (1, 2, 4, 8, 16)

DRAFTERS: dict[str, dict[str, Any]] = {
    "tree": {"shape": {"kind": "tree", "branching": [3, 1]}},
    "dynamic tree": {"shape": {"kind": "dynamic", "width": 3, "most": 10}},
    "EAGLE chain": {"kind": "eagle"},
    "EAGLE tree": {"kind": "eagle", "shape": {"kind": "tree", "branching": [3, 1]}},
    "prompt lookup": {"kind": "lookup"},
}
LENGTHS: dict[str, dict[str, Any]] = {
    "DSDE": {"policy": "dsde"},
    "AdaEDL": {"policy": "adaedl"},
    "heuristic": {"policy": "heuristic", "most": 10},
    "constant 3": {"policy": "fixed", "depth": 3},
}
FLEETS = {"fleet": {}, "fleet, tree": DRAFTERS["tree"], "fleet, EAGLE chain": DRAFTERS["EAGLE chain"]}
TARGETS = (1, 4)  # of a fleet: they stand for accelerators that verify a draft in VERIFY_S
VERIFY_S = 0.01
DEPTH, LENGTHS_SIZE = 5, 8
REQUESTS, FLEET_REQUESTS = 128, 48  # of one run; each case is run once a pass


class Mode(msgspec.Struct, frozen=True):
    """A mode that is calibrated once, at its largest size, and the cases that are predicted from that."""

    name: str
    scenario: Scenario
    cases: dict[str, Scenario]

    @property
    def folder(self) -> str:
        """Name of the folder of what it leaves."""
        return self.name.replace(", ", "-").replace(" ", "-")


def mode_of(
    name: str, sizes: tuple[int, ...], rule: str = OURS, drafters: Mapping[str, Any] | None = None, **batch: Any
) -> Mode:
    """A mode of one batch rule with a case for each size; `drafters` and `batch`: further keys of these tables."""

    def of_size(size: int) -> Scenario:
        return make_scenario(
            {
                "name": f"{name}, {size}",
                "batch": {"rule": rule_of(rule, size), "padded": False, **batch},
                "drafters": {"depth": DEPTH, **(drafters or {})},
                "workload": {
                    "requests": REQUESTS, "prompt_tokens": {"low": 96, "high": 192}, "new_tokens": 48,
                },
            }
        )  # fmt: skip

    return Mode(name, of_size(max(sizes)), {f"{size}": of_size(size) for size in sizes})


def fleet_of(name: str, drafters: Mapping[str, Any]) -> Mode:
    """A mode of several processes: one drafter for targets that replay."""
    stated = {"base_s": VERIFY_S}

    def of_count(count: int) -> Scenario:
        return make_scenario(
            {
                "name": f"{name}, {count}",
                "drafters": {"depth": DEPTH, **drafters},
                "verifiers": {"kind": "replayed", "count": count, "verify": stated, "prefill": stated},
                "workload": {"requests": FLEET_REQUESTS, "prompt_tokens": 128, "new_tokens": 96},
            }
        )

    return Mode(name, of_count(1), {f"{count}": of_count(count) for count in TARGETS})


def modes() -> Iterator[Mode]:
    """All modes: fleets, then batch rules, then kinds and shapes of drafts one at a time, then length rules."""
    for name, drafters in FLEETS.items():
        yield fleet_of(name, drafters)
    for name in RULES:
        yield mode_of(name, SIZES, name)
    for name, drafters in DRAFTERS.items():
        yield mode_of(name, (1,), drafters=drafters)
    for name, allocate in LENGTHS.items():
        yield mode_of(name, (LENGTHS_SIZE,), allocate=allocate)
