"""A policy of an installed package needs no fork: scenarios name it, both worlds and replay decide by it."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from specfleet.experiments.notes import notes_of
from specfleet.fleet.policies.allocate import LengthAllocation
from specfleet.fleet.scenario.conflicts import conflicts
from specfleet.fleet.scenario.reading import scenario_of
from tests.helpers.processes import ROOT, ended, start

PACKAGE = '''
import msgspec

class ShortestFirst(msgspec.Struct, frozen=True, tag="shortest-first", tag_field="policy", forbid_unknown_fields=True):
    """The request with the fewest tokens left goes first.

    Keys:
        seen (tokens): Progress that is noted where a request is picked.
    """

    seen: bool = False

    def pick(self, waiting):
        if self.seen:
            for work in waiting:
                print("SEEN", work.base, work.left, work.accepted_per_round)
        return min(range(len(waiting)), key=lambda index: (waiting[index].left, index))

class OwnFifo(msgspec.Struct, frozen=True, tag="fifo", tag_field="policy"):
    pass

class InTurn(msgspec.Struct, frozen=True, tag="one-or-two", tag_field="policy"):
    """Drafts of one token and of two take turns."""

    longest = 2
    budget = 1 << 30
    watches = False
    needs = "lengths"

    def start(self):
        return 0

    def learn(self, state, drafted, outcome):
        return state + 1

    def lengths(self, states, rng):
        return [1 + state % 2 for state in states]

    def stops(self, state, entropy):
        return False
'''
PROGRAM = """
import json, sys, specfleet
from specfleet.fleet.records.replay import replay
tables = json.loads(sys.argv[1])
result = specfleet.simulate("star", tables)
rounds = result.rounds()
again = replay(result.run)
print("FOUND", json.dumps({"contradictions": again, "drafted": sorted(set(rounds.draft_tokens)),
    "waits": list(result.targets().get("wait_s", [])), "path": result.run.header.path}))
"""


def installed(folder: Path, entries: str) -> dict[str, str]:
    """Put a package with those entry points where Python finds it; return the environment that does."""
    (folder / "mine.py").write_text(PACKAGE)
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[specfleet.policies]\n{entries}\n")
    return {"PYTHONPATH": f"{folder}:{ROOT}"}


def test_an_order_of_a_package_sees_progress_and_replays(tmp_path: Path) -> None:
    env = installed(tmp_path, "order.shortest = mine:ShortestFirst")
    tables = {
        "verifiers.count": 3, "workload.requests": 3, "drafters.order": {"policy": "shortest-first", "seen": True},
        "workload.prompt_tokens": 10, "workload.new_tokens": 12,
    }  # fmt: skip
    status, out, err = ended(start("-c", PROGRAM, json.dumps(tables), env=env))
    assert status == 0, err
    found = json.loads(out.split("FOUND ")[1])
    assert found["contradictions"] == []
    assert found["path"] == "simpy"
    seen = [line.split()[1:] for line in out.splitlines() if line.startswith("SEEN")]
    assert all(int(base) + int(left) == 22 for base, left, _ in seen)
    assert {rate for base, _, rate in seen if base == "11"} == {"nan"}
    assert all(0 <= float(rate) <= 5 for base, _, rate in seen if base != "11")


def test_a_length_rule_of_a_package_grants_lengths(tmp_path: Path) -> None:
    env = installed(tmp_path, "allocate.one-or-two = mine:InTurn")
    tables = {"workload.requests": 4, "verifiers.allocate": "one-or-two", "verifiers.late": "wait"}
    status, out, err = ended(start("-c", PROGRAM, json.dumps(tables), env=env))
    assert status == 0, err
    assert json.loads(out.split("FOUND ")[1]) | {"waits": 0} == {
        "contradictions": [], "drafted": [1, 2], "waits": 0, "path": "simpy",
    }  # fmt: skip


@pytest.mark.parametrize("world", ["simulate", pytest.param("run", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("fleet", "keys"),
    [("serving", {"verifiers.max_num_seqs": 2, "workload.streams": 6}), ("star", {"verifiers.count": 6})],
)
def test_the_rule_of_the_page_drafts_by_the_queue(world: str, fleet: str, keys: dict[str, int], tmp_path: Path) -> None:
    """Of the target, or of a drafter elsewhere; most requests wait at first, none at the end."""
    page = (ROOT / "docs" / "rules.md").read_text()
    rule, entry = (
        re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) for kind in ("python", "toml")
    )
    env = installed(tmp_path, entry[0].partition("\n")[2].replace('"', ""))
    (tmp_path / "mine.py").write_text(rule[0])
    tables = {"verifiers.allocate": "by-queue", "workload.requests": 6, "workload.new_tokens": 12, **keys}
    program = PROGRAM.replace('specfleet.simulate("star"', f'specfleet.{world}("{fleet}"')
    status, out, err = ended(start("-c", program, json.dumps(tables), env=env))
    assert status == 0, err
    found = json.loads(out.split("FOUND ")[1])
    assert found["contradictions"] == []
    assert {1, 5} <= set(found["drafted"]) <= {0, 1, 2, 3, 4, 5}


class Looks(LengthAllocation, frozen=True, tag="looks", tag_field="policy"):
    sees_queue = True


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"verifiers.count": 8}, ""),
        ({"drafters.count": 4}, "here no request waits"),
        ({"drafters.place": "target"}, "here no request waits"),
        ({"drafters.place": "target", "workload.streams": 9}, ""),
        ({"drafters.place": "target", "verifiers.aligned": "realign"}, "verifiers.aligned does not show"),
    ],
)
def test_a_rule_without_a_queue_to_see_is_told(keys: dict[str, object], says: str) -> None:
    scenario = scenario_of("star", keys)
    looking = replace(scenario, verifiers=replace(scenario.verifiers, allocate=Looks()))
    said = [line for line in (*notes_of(looking), *conflicts(looking)) if "looks at the queue" in line]
    assert bool(said) == bool(says)
    assert says in " ".join(said)


def test_explain_knows_a_policy_of_a_package(tmp_path: Path) -> None:
    env = installed(tmp_path, "order.shortest = mine:ShortestFirst")
    status, out, _ = ended(start("-m", "specfleet", "explain", "order.shortest-first", env=env))
    assert status == 0
    lines = [line.strip() for line in out.splitlines()]
    assert lines[1:3] == ["The request with the fewest tokens left goes first.", "Keys:"]
    assert lines[3] == "seen (tokens): Progress that is noted where a request is picked."


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("order.bad = mine:Nothing", "entry point order.bad of specfleet.policies: cannot be loaded"),
        ("order.int = builtins:int", "entry point order.int of specfleet.policies: needs a frozen msgspec.Struct"),
        ("depth.mine = mine:ShortestFirst", "allowed: order.NAME, admit.NAME, route.NAME, allocate.NAME"),
        ("order.twice = mine:OwnFifo", "another policy of this key is called 'fifo'"),
    ],
)
def test_a_wrong_entry_point_is_one_line(entry: str, said: str, tmp_path: Path) -> None:
    status, out, err = ended(start("-m", "specfleet", "simulate", "star", env=installed(tmp_path, entry)))
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
