"""The page of the equations: its script says what `analytic` says, by Node, and the whole page in a browser."""

import json
import math
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import specfleet
from specfleet.experiments.report.explore import HERE, settings_of
from specfleet.fleet.acceptance.models import Geometric, Recorded
from specfleet.fleet.scenario.reading import scenario_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.writing import toml
from specfleet.fleet.times.effects import IdleEffect
from specfleet.fleet.times.overhead import Delay, Overhead, Overheads, StationOverheads
from specfleet.fleet.times.profile import HardwareProfile, read_profile
from specfleet.fleet.times.roofline import AttentionTime, Roofline
from specfleet.fleet.times.step_time import LinkTime, StepTime
from tests.helpers.browser import NEEDS_ONE, value_in
from tests.helpers.cli import Say

NODE = shutil.which("node")
DARK = "(prefers-color-scheme: dark)"
ANSWER = "{}.map(([of, moved]) => [compute(of), changesOf(of, new Set(moved))])"


def in_node(script: str) -> Any:
    program = f"{(HERE / 'equations.js').read_text()}\nconsole.log(JSON.stringify({script}));"
    assert NODE is not None
    said = subprocess.run([NODE, "-"], input=program, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(said.stdout)


def drawn_profile(rng: np.random.Generator) -> HardwareProfile:
    """A random machine with every time that the equations read; some of its laws are bent."""

    def step(in_turn: bool = False) -> StepTime:
        bent = Roofline((1, 8, 64), (1e-3, 2e-3, 4e-2), (AttentionTime(1e-6, 1e-6),), in_turn=in_turn)
        terms = rng.uniform(0, (3e-2, 5e-3, 1e-5, 1e-6)).tolist()
        return StepTime(*terms, roofline=bent if rng.random() < 0.3 else None)

    def overhead() -> Overhead:
        return Overhead(*(Delay(mean_s) for mean_s in rng.uniform(0, 1e-3, 3).tolist()))

    return HardwareProfile(
        "drawn", draft=step(in_turn=True), verify=step(), decode=step(), catch_up_s=rng.uniform(0, 1e-3),
        overhead=Overheads(StationOverheads(overhead(), overhead())), idle=IdleEffect(slowdowns=(rng.uniform(1, 1.5),)),
        link=LinkTime(rng.uniform(0, 2e-2), rng.uniform(1e4, 1e6)),
    )  # fmt: skip


def drawn_case(rng: np.random.Generator) -> tuple[Scenario, tuple[dict[str, Any], list[str]]]:
    """A star on a random machine, and what the page holds of it after random moves of all that moves."""
    scenario = scenario_of("star", {"profile": drawn_profile(rng), "workload.requests": 40})
    of = settings_of(resolve(scenario), Geometric(0.5))
    of |= {"N": int(rng.integers(1, 40)), "d": int(rng.integers(1, 17)), "plain_key": "profile.decode"}
    of |= {"model": rng.choice(["geometric", "beta-geometric"])}
    of |= {"beta": rng.random(), "a": rng.uniform(0.05, 20), "b": rng.uniform(0.05, 20)}
    moved = [group for group in ("draft", "verify", "latency", "plain") if rng.random() < 0.5]
    if "draft" in moved:
        of |= {"draft_a_s": of["draft_least_s"] + rng.uniform(0, 0.05), "draft_b_s": rng.uniform(0, 0.01)}
        of["draft_rest_s"] = None
    if "verify" in moved:
        of |= {"verify_a_s": of["verify_least_s"] + rng.uniform(0, 0.2), "verify_rest_s": None}
    if "plain" in moved:
        of["plain_s"] = rng.uniform(0.001, 0.1)
    if "latency" in moved:
        of["latency_s"] = rng.uniform(0, 0.1)
    return scenario, (of, moved)


def numbers_of(prediction: specfleet.Prediction) -> dict[str, Any]:
    numbers = msgspec.to_builtins(prediction)
    return {name: value for name, value in numbers.items() if name not in ("targets", "notes")}


def is_near(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict):
        return all(is_near(value, theirs[key]) for key, value in ours.items())
    return ours == theirs if isinstance(ours, str) else math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12)


def wrong_ones(answer: Callable[[str], Any], count: int = 200) -> list[Any]:
    """What the script says of random settings, where it is not what `analytic` says after the script's changes."""
    rng = np.random.default_rng(58)
    cases = [drawn_case(rng) for _ in range(count)]
    said = answer(ANSWER.format(json.dumps([case for _, case in cases])))
    texts = ([f"{key}={value}" for key, value in changes.items()] for _, changes in said)
    expected = [
        numbers_of(specfleet.analytic(scenario, text)) for (scenario, _), text in zip(cases, texts, strict=True)
    ]
    return [pair for pair in zip([numbers for numbers, _ in said], expected, strict=True) if not is_near(*pair)]


@pytest.mark.skipif(NODE is None, reason="no Node")
def test_the_script_says_what_analytic_says() -> None:
    assert wrong_ones(in_node) == []


@pytest.mark.parametrize("scenario", ["star", "intra-node", "edge-server", "a100"])
def test_the_page_opens_with_the_scenario_as_it_stands(scenario: str, tmp_path: Path) -> None:
    page = specfleet.explore(scenario, tmp_path / "page.html")
    assert page == (tmp_path / "page.html").read_text()
    base = {"profile": scenario} if scenario == "a100" else {}
    no_acceptance = {"acceptance": None} if base else {}
    own = specfleet.analytic("star" if base else scenario, base | no_acceptance)
    assert is_near(in_node(f"compute({settings_in(page)})"), numbers_of(own))
    if scenario == "edge-server":  # whose tier states the times of its own drafts
        return
    block = specfleet.analytic("star" if base else scenario, base | {"drafters.kind": "block"} | no_acceptance)
    assert is_near(in_node(f"compute({settings_in(page)}, true)"), numbers_of(block))


def settings_in(page: str) -> str:
    (settings,) = re.findall(r"^start\((.*)\);$", page, re.MULTILINE)
    return settings


def test_recorded_acceptance_is_fitted_and_said_to_be() -> None:
    sessions = Recorded(4, ((0, 4, 4, 1, 0, 2, 4, 4), (4, 4, 0, 0, 3, 4, 4, 4)))
    page = specfleet.explore("star", acceptance=sessions, drafters={"depth": 3})
    assert json.loads(settings_in(page))["model"] == "beta-geometric"
    assert "fitted to what was recorded" in page


@pytest.mark.parametrize(
    ("scenario", "key", "value"),
    [
        ("inter-node", "verifiers.tiers", None), ("tree", "drafters.shape", None), ("amusd", "drafters.overlap", None),
        ("serving", "drafters.place.*; specfleet report FOLDER -o page.html", None), ("star", "drafters.kind", "block"),
        ("star", "drafters.admit", "at-most"), ("star", "verifiers.patience_s", 5.0),
        ("star", "drafters.tiers", [{"first": 1, "link": {"latency_s": 0.1}}]),
    ],
)  # fmt: skip
def test_what_is_no_star_at_all_settings_is_refused(scenario: str, key: str, value: Any) -> None:
    with pytest.raises(specfleet.InputError, match=key):
        specfleet.explore(scenario, changes={key: value} if value else None)


@pytest.mark.parametrize(
    ("scenario", "changes"),
    [
        ("amusd", {}), ("goodspeed", {}),
        ("serving", {"acceptance": {"model": "per-position", "histogram": [4, 3, 2, 1]}, "drafters.depth": 2}),
    ],
)  # fmt: skip
def test_the_sweep_that_a_refusal_names_runs(scenario: str, changes: dict[str, Any]) -> None:
    with pytest.raises(specfleet.InputError) as refused:
        specfleet.explore(scenario, changes=changes)
    (words,) = re.findall(r"specfleet (sweep \w+ .*) -o FOLDER;", str(refused.value))
    _, _, _, varied, *sets = shlex.split(words)
    assert sets[1::2] == [f"{key}={toml(value)}" for key, value in changes.items() if not varied.startswith(key)]
    rest = {key: value for key, value in changes.items() if not varied.startswith(key)}
    swept = specfleet.sweep(scenario, varied, rest | {"workload.requests": 8}, seeds=1, jobs=1)
    assert len(swept.cells) > 1
    assert swept.errors == []


def test_times_of_one_load_are_first_imported_with_a_model() -> None:
    inferred = {"name": "inferred", "draft": {}, "verify": {"base_s": 0.02}, "inferred_at": [4, 4]}
    with pytest.raises(specfleet.InputError, match=r"again with --target MODEL@DEVICE .* --vary drafters\.depth=1:4 "):
        specfleet.explore("star", changes={"profile": inferred, "drafters.place": "target", "drafters.depth": 4})


@pytest.mark.skipif(NODE is None, reason="no Node")
@pytest.mark.parametrize(
    "moves", [{}, {"N": 3, "d": 4, "latency_s": 0.01}, {"draft_a_s": 0.02, "verify_a_s": 0.05, "beta": 0.5}]
)
def test_its_changes_simulate_the_same_but_for_what_is_left_out(moves: dict[str, Any]) -> None:
    """Here texts are long beside prefills, and idle gaps slow nothing."""
    machine = msgspec.structs.replace(read_profile("rtx-4090", Path()), idle=IdleEffect())
    star = scenario_of("star", {"profile": machine, "workload.new_tokens": 4000, "workload.requests": 80})
    of = settings_of(resolve(star), Geometric(0.74)) | moves
    ((numbers, changes),) = in_node(ANSWER.format(json.dumps([[of, [key.split("_")[0] for key in moves]]])))
    changes["workload.requests"] = of["N"]
    simulated = specfleet.simulate(star, [f"{key}={value}" for key, value in changes.items()]).metrics
    assert simulated["throughput"].value == pytest.approx(numbers["throughput"]["with_bonus"], rel=0.03)


class TestInABrowser:
    pytestmark = NEEDS_ONE

    @pytest.fixture
    def page(self, tmp_path: Path) -> Path:
        specfleet.explore("star", tmp_path / "page.html")
        return tmp_path / "page.html"

    def test_the_page_says_what_analytic_says(self, page: Path) -> None:
        assert wrong_ones(lambda script: value_in(page, script)) == []

    def test_it_loads_nothing_and_its_script_runs(self, page: Path) -> None:
        assert value_in(page, "[errors, performance.getEntriesByType('resource').length]") == [[], 0]

    def test_the_plain_step_follows_a_moved_verification(self, page: Path) -> None:
        """As `analytic` has it, until the plain step is moved."""
        typed = {"draft_a_s": 45, "draft_b_s": 0, "verify_a_s": 120, "latency_s": 15, "d": 5, "plain_s": 200, "N": 4}
        seen = "seen.push([compute(state).N_max, document.getElementById('answer').textContent])"
        moves = "; ".join(f"{move('[type=number]', *key)}; {seen}" for key in [*typed.items(), ("verify_a_s", 20)])
        *_, (N_max, answer), _, _, (last, _) = value_in(page, f"(() => {{ const seen = []; {moves}; return seen; }})()")
        keys = ["drafters.depth=5", "profile.draft=45ms", "profile.verify=120ms", "link=15ms"]
        assert N_max == specfleet.analytic("star", keys).N_max == 8
        assert last == specfleet.analytic("star", [*keys, "profile.verify=20ms", "profile.decode=200ms"]).N_max
        assert "more raise no throughput; with up to 8 (N_max) each is at least as fast" in answer
        assert "With N = 4 it works 92 % of the time; up to 4 targets none waits for it" in answer

    def test_the_command_that_it_shows_runs(self, page: Path, say: Say) -> None:
        moves = "; ".join(move("input[type=range]", *key) for key in (("N", 6), ("draft_b_s", 2), ("latency_s", 5)))
        shown = "document.getElementById('command').textContent, O(compute(state))"
        command, throughput = value_in(page, f"(() => {{ {moves}; return [{shown}]; }})()")
        said = say(*shlex.split(command)[1:], "--json")
        simulated = json.loads(said.out)["metrics"]["throughput"]["value"]
        assert simulated == pytest.approx(throughput, rel=0.1)
        assert "drafters.tiers" in command
        assert "link.latency_s=0.005" in command

    def test_on_a_phone_nothing_is_wider_than_the_window(self, page: Path) -> None:
        narrow = "document.body.style.width = '390px'; dispatchEvent(new Event('resize'))"
        assert value_in(page, f"(() => {{ {narrow}; return document.querySelector('main').scrollWidth; }})()") <= 390

    def test_no_style_of_other_pages_hides_a_part(self, page: Path) -> None:
        text = page.read_text()
        assert not set(re.findall(r'class="(\w+)"', text)) & set(re.findall(r"\.(\w+) { display: none; }", text))

    def test_a_block_drafter_shows_where_it_is_asked_for(self, page: Path) -> None:
        """Until then the chain has the whole axis."""
        highest = "Math.min(...[...document.querySelectorAll('#by-N polyline')].map(e => e.getBBox().y))"
        shown = "[...document.querySelectorAll('.of-block')].filter(e => e.clientWidth || e.offsetWidth).length"
        seen = f"[document.querySelectorAll('#by-N polyline').length, {highest}, {shown}]"
        ticked = "document.getElementById('block').click()"
        (few, height, none), (more, full, every) = value_in(page, f"[{seen}, ({ticked}, {seen})]")
        assert (few, none, more) == (2, 0, 3)
        assert every > 10
        assert max(height, full) < 130, "of 200 pixels"

    def test_a_value_that_is_not_possible_dims_results(self, page: Path) -> None:
        seen = "seen.push([getComputedStyle(document.querySelector('.figures')).opacity, O(compute(state))])"
        moves = "; ".join(f"{move('[type=number]', 'beta', value)}; {seen}" for value in ("0.74", "7", "''", "0.5"))
        first, bad, empty, good = value_in(page, f"(() => {{ const seen = []; {moves}; return seen; }})()")
        assert (first[0], bad, empty, good[0]) == ("1", ["0.25", first[1]], ["0.25", first[1]], "1")

    def test_a_slider_at_its_least_is_possible(self, tmp_path: Path) -> None:
        specfleet.explore("star", tmp_path / "page.html", {"profile": drawn_profile(np.random.default_rng(58))})
        least = "e.value = e.min; e.dispatchEvent(new Event('input', {bubbles: true}))"
        moved = f"document.querySelectorAll('[type=range]').forEach((e) => {{ {least} }})"
        assert value_in(tmp_path / "page.html", f"({moved}, document.querySelectorAll(':invalid').length)") == 0

    def test_a_stated_draft_time_has_no_block_beside_it(self, tmp_path: Path) -> None:
        specfleet.explore("star", tmp_path / "page.html", {"profile.draft": "45ms"})
        shown = "document.getElementById('of-block').offsetHeight, document.getElementById('answer').textContent"
        height, answer = value_in(tmp_path / "page.html", f"[{shown}]")
        assert (height, "S(d) is the same at each depth." in answer) == (0, True)

    def test_in_the_dark_its_own_colours_stay(self, page: Path) -> None:
        assert value_in(page, "getComputedStyle(document.getElementById('by-N')).filter", DARK) == "none"

    def test_a_move_takes_no_longer_than_a_frame(self, page: Path) -> None:
        """The fastest of thirty, for the host may be busy."""
        moved = f"{move('input[type=range]', 'N', '1 + i % 16')}; document.body.offsetHeight"
        timed = f"const began = performance.now(); {moved}"
        every = f"Array.from({{length: 30}}, (_, i) => {{ {timed}; return performance.now() - began; }})"
        assert 0 < min(value_in(page, every, clock="--no-first-run")) < 16


def move(kind: str, key: str, value: object) -> str:
    """The script that moves a control by hand."""
    found = f"document.querySelector('#of-{key} {kind}')"
    return f"{found}.value = {value}; {found}.dispatchEvent(new Event('input', {{bubbles: true}}))"


def test_a_profile_says_what_the_star_gives_it(say: Say, tmp_path: Path) -> None:
    said = say("explore", "a100", "-o", tmp_path / "page.html").err
    note = "a drafter apart from its targets, one request at each; depth and lengths are star's"
    assert note in " ".join(said.split())
    assert note.replace("'", "&#x27;") in (tmp_path / "page.html").read_text()
    set_too = ["profile=a100", "profile.decode=120ms"]  # as its command has it once the plain step moves
    assert specfleet.analytic("star", set_too).N_max > specfleet.analytic("star", set_too[:1]).N_max
