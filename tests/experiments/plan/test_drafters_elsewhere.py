"""Drafters elsewhere: where they pay, how many targets one carries, on which links, and against what."""

import re
from typing import Any

import pytest

pytest.importorskip("numba")

import specfleet
from specfleet.experiments.plan.answer import Plan
from specfleet.fleet.errors import InputError
from tests.helpers.plans import FEW, HEAD, PAIR, SMALL, TARGET

APART: dict[str, Any] = {
    "target": "llama-3.1-70b@4xh100", "draft": "llama-3.2-1b@l40s", "link": "1ms", "jobs": 1,
}  # fmt: skip


def test_a_drafter_elsewhere_pays_up_to_one_link_from_wherever_it_is_asked() -> None:
    edges = list[float]()
    for link in (1.0, 9.0, 20.0):
        keys = SMALL | {"link.latency_s": f"{link}ms"}
        found = specfleet.plan("star", keys, vary=["verifiers.count=1:4", "drafters.depth=4"], jobs=1)
        (line,) = [line for line in found.lines if line.startswith("a drafter elsewhere pays: against no speculation ")]
        pays = re.search(r"by over 1%:(?: from (\d) targets? a drafter on,)? up to a link of ([\d.]+) ms", line)
        assert pays is not None, line
        apart = [row for row in found.rows if row.drafters]
        plain = next(row for row in found.rows if not row.depth)
        paying = [row.targets // row.drafters for row in apart if row.per_million < 0.99 * plain.per_million]
        assert pays[1] == (str(min(paying)) if paying else None)
        edges.append(float(pays[2]))
        assert bool(paying) == (link < edges[-1])
    assert max(edges) / min(edges) < 1.1 * 1.05  # a step of halving, and two digits


def test_servers_with_a_spare_card_say_where_it_pays() -> None:
    keys = {"workload.prompt_tokens": 200, "workload.new_tokens": 100, "drafters.place": "own", "drafters.depth": 4}
    asked = {"target": "llama-3.1-70b@4xh100", "draft": "llama-3.2-1b@l40s", "devices": "4xh100,1xl40s", "jobs": 1}
    found = specfleet.plan(None, keys, **asked, cost="l40s=0", acceptance=0.8, in_flight=8, link="1ms")
    lines = dict(line.partition(": ")[::2] for line in found.lines)
    assert re.search("by over 1%: up to a link of [0-9]+ ms$", lines["a drafter elsewhere pays"])
    per_s, at_once = map(float, re.findall(r"([\d.]+) requests/s .*?(\d+) at once", lines["limit"])[0])
    assert per_s * 100 > found.chosen.tokens_per_s
    assert at_once > 8
    assert "no speculation wins if acceptance of llama-3.2-1b is lower by " in lines["turns"]
    assert re.search("; there no speculation is [0-9]+% longer a token$", lines["risk"])
    assert "`specfleet run` does, but splits no target over 4 devices" in found.commands[0]


def test_a_plan_says_where_it_is_and_what_one_drafter_carries() -> None:
    said, short = list[str](), {"drafters.depth": 2, "workload.new_tokens": 16, "workload.prompt_tokens": 20}
    found = specfleet.plan(None, short, **APART, acceptance=0.7, in_flight=32, done=said.append)
    assert said[0].startswith("a first look, fleets: 8, methods: 3; best so far: ")
    assert any(what.startswith("method 2 of 3, about ") for what in said)
    (line,) = [line for line in found.lines if line.startswith("carries")]
    said = (
        r"for all that wait at once \(group batch\), 32 in flight at each target: tokens/s a target: (.*), "
        r"(\d+) without speculation: "
        r"(?:faster with up to (\d+)|never faster); the drafter is (?:always busy from (\d+) on|busy .* at most) "
    )
    counts, plain, faster, full = re.findall(said, line)[0]
    alone = next(row for row in found.best() if not row.depth)
    assert plain == f"{alone.tokens_per_s / alone.targets:.0f}"
    rates = {count: float(rate) for rate, count in re.findall(r"(\d+) with (\d+)", counts)}
    assert int(full or 1) <= max(map(int, rates)) == 2 ** (len(rates) - 1)
    assert faster == max((count for count in rates if rates[count] > 1.01 * float(plain)), key=int, default="")
    (line,) = [line for line in found.lines if line.startswith("rounds: 32 in flight at each target: ")]
    said = r"l40s, \d targets? a drafter: ([\d.]+) ms for ([\d.]+) tokens = ([\d.]+) ms a token \((.*?)[;)].*; no spec"
    whole, tokens, token, parts = re.findall(said, line)[0]
    assert float(whole) == pytest.approx(float(tokens) * float(token), rel=0.01)
    (decoded,) = re.findall(r"; ([\d.]+) of the tokens decoded while .*; \d+% of drafts never verified\)", line)
    assert 0 < float(decoded) < float(tokens)
    assert found.title.partition(":")[0].endswith(", link 1ms")
    assert sum(map(float, re.findall(r" ([\d.]+)(?=,|$)", parts))) == pytest.approx(float(whole), rel=0.02)


def test_depths_of_a_drafter_elsewhere_are_those_simulated() -> None:
    short = {"workload.new_tokens": 16, "workload.prompt_tokens": 20, "drafters.place": "own"}
    found = specfleet.plan(None, short, **APART, acceptance=0.7, in_flight=16, vary="verifiers.count=1")
    (depths,) = [line for line in found.lines if line.startswith("depths")]
    (drafts,) = [row for row in found.best() if row.drafters]
    rates = {row.depth: row.tokens_per_s for row in found.rows if row.fleet.endswith(drafts.fleet[-20:])}
    fastest = max(row.tokens_per_s for row in found.best())
    lost = re.findall(r"(\d+)% at depth 1", depths)
    assert (1 in rates) == bool(lost)
    assert not lost or float(lost[0]) == pytest.approx(100 * (1 - rates[1] / fastest), abs=5)  # a seed


def test_a_star_on_a_long_link_decodes_meanwhile() -> None:
    found = specfleet.plan("star", SMALL, **PAIR | {"link": "40ms"}, vary=FEW)
    apart, plain = ([row for row in found.rows if row.method == name] for name in ("llama-3.2-1b@l4", "no speculation"))
    late = [row for row in apart if row.fleet.endswith(", decode late drafts")]
    waiting, best = (max(row.tokens_per_s / row.targets for row in apart if (row in late) == it) for it in (0, 1))
    assert waiting < 0.97 * plain[0].tokens_per_s < best
    assert apart[0] in late
    unknown = {"name": "no plain steps"} | {key: {"base_s": 0.01} for key in ("draft", "verify", "verify_prefill")}
    assert "late drafts" not in specfleet.plan("star", SMALL | {"profile": unknown}, vary=FEW, jobs=1).chosen.fleet
    (line,) = [line for line in found.lines if line.startswith("a drafter elsewhere pays: against ")]
    at_no_distance, planned = (int(re.findall(r"(\d+)% dearer", said)[-1]) for said in (line, apart[0].standing))
    assert at_no_distance <= planned


def test_each_link_has_its_number_of_targets() -> None:
    few = SMALL | {"drafters.depth": 4}
    several = specfleet.plan("star", few, **PAIR | {"link": "1ms,9ms"}, vary="verifiers.count=2")
    carries = [line for line in several.lines if line.startswith("carries")]
    assert len(carries) == 2
    for link in ("1ms", "9ms"):
        rule = specfleet.plan("star", few, **PAIR | {"link": link}, vary="verifiers.count=2").rule
        assert rule is not None
        said = re.findall(rf"link {link}\D.*?N_full = (\d+).*?N_max = (\d+)", "\n".join(carries))
        assert said == [(str(rule.N_full), str(rule.N_max))]


@pytest.mark.parametrize("depths", ["4", "1,4"])
def test_another_method_wins_where_acceptance_turns_the_advice(depths: str) -> None:
    """The same drafter elsewhere has the same acceptance, and does not win by it."""

    def asked(acceptance: float) -> Plan:
        return specfleet.plan("star", SMALL, vary=f"drafters.depth={depths}", acceptance=acceptance, **APART)

    found = asked(0.8)
    rival, by = re.findall("turns: (.*) wins if acceptance of llama-3.2-1b is lower by ([0-9.]+)", str(found.lines))[0]
    before, after = (asked(0.8 - float(by) + more).chosen.method for more in (0.02, -0.02))
    assert before == found.chosen.method
    assert after == rival == "no speculation"


def test_only_a_drafter_elsewhere_that_meets_the_goal_pays() -> None:
    short = SMALL | {"drafters.depth": 3, "drafters.place": "own"}
    found = specfleet.plan("star", short, **APART, acceptance=0.3, least="tokens_per_s_per_user=60")
    (plain,) = [row for row in found.best() if not row.depth]
    assert found.chosen.drafters
    assert plain.standing.startswith("misses")
    lines = dict(line.split(": ", 1) for line in found.lines)
    assert "up to a link of" in lines["a drafter elsewhere pays"]
    assert lines["turns"].startswith("a goal is missed if acceptance of llama-3.2-1b is lower by 0.")


@pytest.mark.parametrize("tokens_per_s", [400, 640])
def test_goals_of_all_tokens_are_met_by_more_targets(tokens_per_s: int) -> None:
    keys = PAIR | {"cost": "h100=1,l4=50", "least": f"tokens_per_s={tokens_per_s}"}
    plan = specfleet.plan("star", SMALL, vary=["drafters.depth=6", "verifiers.count=1:5"], **keys)
    assert plan.chosen.tokens_per_s >= tokens_per_s
    fewer = [row for row in plan.rows if row.method == plan.chosen.method and row.targets < plan.chosen.targets]
    assert all(row.standing.startswith("misses") for row in fewer)


def test_a_place_that_is_set_is_where_the_answer_drafts() -> None:
    for place in ("own", "target"):
        found = specfleet.plan("star", SMALL | {"drafters.place": place, "drafters.depth": 2}, **PAIR)
        assert {row.drafters > 0 for row in found.rows if row.depth} == {place == "own"}
        assert [row.method for row in found.best() if not row.depth] == ["no speculation"]
    with pytest.raises(InputError, match=r"drafters\.place = own: no drafter is there; --draft MODEL@DEVICE"):
        specfleet.plan("star", {"drafters.place": "own"}, target=TARGET, draft=HEAD, acceptance=0.7, jobs=1)
