"""No stream takes more cache places than its fleet resolved, for any workload and speeds."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.sim.run import simulate
from tests.helpers.stars import TABLES, star

lengths = st.integers(1, 60)
ranges = st.tuples(lengths, lengths).map(lambda two: {"low": min(two), "high": max(two)})
long = st.integers(1, 600)  # longer than by the keys of [workload]
arrivals = st.lists(st.tuples(st.floats(0, 50), long, long), min_size=1, max_size=8)
POISSON = {"process": "poisson", "per_s": 0.2}
HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens"


@st.composite
def workloads(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str]]:
    """A workload, and the content of its files by name."""
    plain = {"requests": 12, "prompt_tokens": draw(lengths | ranges), "new_tokens": draw(lengths | ranges)}
    match draw(st.sampled_from(["closed", "poisson", "trace"])):
        case "closed":
            return plain, {}
        case "poisson":
            return plain | {"arrivals": POISSON}, {}
        case _:
            rows = sorted(draw(arrivals))
            content = "\n".join([HEADER, *(f"{at_s},{prompt},{new}" for at_s, prompt, new in rows)])
            file = {"process": "trace", "file": "trace.csv"}
            return {"requests": len(rows), "arrivals": file}, {"trace.csv": content}


def places_of(run: Run) -> int:
    """Largest number of cache places of a stream: committed tokens and draft tokens beyond them."""
    done = run.frame().query("event == 'done' and kind in ('draft', 'verify')")
    return int((done.base + done.tokens).max()) if len(done) else 0


@settings(max_examples=60)
@given(workloads(), st.integers(1, 3))
def test_streams_stay_within_their_room(drawn: tuple[dict[str, Any], dict[str, str]], N: int) -> None:
    workload, files = drawn
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_text(content)
        stated = {key: TABLES[key] for key in ("profile", "acceptance")}
        tables = stated | {"verifiers": {"count": N}, "workload": workload}
        run = simulate(make_scenario(tables, base=Path(folder)))
    assert places_of(run) <= run.header.fleet.room.longest_row
    assert replay(run) == []


speeds = st.floats(0.001, 2.0)


@settings(max_examples=25)
@given(speeds, speeds, st.floats(0, 5), st.floats(0.01, 1), st.integers(1, 4), st.booleans(), st.integers(1, 3))
def test_drafting_ahead_stays_within_its_room(
    draft_s: float, verify_s: float, latency_s: float, beta: float, least: int, busy: bool, N: int
) -> None:
    profile = {"draft": {"per_token_s": draft_s}, "verify": {"base_s": verify_s}}
    drafters = {"overlap": {"policy": "ahead", "least": least, "busy": busy}}
    load = {"verifiers": {"count": N}, "workload": {"requests": 2 * N}}
    run = simulate(
        star(profile=profile, drafters=drafters, acceptance={"beta": beta}, link={"latency_s": latency_s}, **load)
    )
    assert places_of(run) <= run.header.fleet.room.longest_row == 60
    assert replay(run) == []
