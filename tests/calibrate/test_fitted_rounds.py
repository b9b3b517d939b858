"""An estimate is scaled to the round that a server's record has."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import specfleet
from specfleet.fleet.acceptance.models import rate_of_mean
from specfleet.fleet.hardware.profile import beside, estimated_profile, placed_of
from specfleet.fleet.hardware.shipped import shape_of
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.times.profile import STEPS, HardwareProfile
from specfleet.sim.run import simulate
from tests.helpers.loads import DEPTH, metrics_text, served_in
from tests.helpers.readings import write

AT, HEAD = "llama-3.1-8b@h100", "eagle3-llama-3.1-8b"


def slower(folder: Path, target: float, drafts: float, depth: int = DEPTH, **workload: Any) -> tuple[list[Path], float]:
    """Two scrapes of an H100 so many times as slow as its estimate, and their seconds."""
    profile = specfleet.estimate(AT, f"{HEAD}@h100" if depth else None, engine="vllm")
    times = {name: getattr(profile, name).slowed(target) for name in STEPS}
    times["draft"] = profile.draft.slowed(drafts)
    lengths: dict[str, Any] = {"requests": 120, "prompt_tokens": 600, "new_tokens": {"low": 100, "high": 200}}
    content: dict[str, Any] = {
        "profile": replace(profile, provenance={}, **times), "workload": lengths | (workload or {"streams": 8}),
        "drafters": {"place": "target", "kind": "eagle", "depth": depth} if depth else {"count": 0},
    }  # fmt: skip
    if depth:
        content["acceptance"] = {"model": "per-position", "survival": [0.7, 0.5, 0.35]}
    requests = served_in(simulate(make_scenario(content)))
    before = write(folder / "before.txt", metrics_text(requests[:9], depth))
    after = write(folder / "after.txt", metrics_text([*requests[:9], *requests], depth))
    return [before, after], max(one.end_s for one in requests)


FITS = {  # times of target and drafts over their estimates, depth; what is scaled, and by how much
    "slow drafts": (1.0, 1.8, DEPTH, "drafts x", 1.8),
    "a fast server": (0.8, 0.8, DEPTH, "rooflines, x", 0.8),
    "no drafts": (1.3, 1.0, 0, "rooflines, x", 1.3),
}


@pytest.mark.parametrize("name", FITS)
def test_an_estimate_is_fitted_to_the_measured_round(tmp_path: Path, name: str) -> None:
    target, drafts, depth, what, factor = FITS[name]
    files, seconds = slower(tmp_path, target, drafts, depth)
    times: dict[str, Any] = {"target": AT, "draft": HEAD if depth else ""}
    made = specfleet.import_record("vllm-metrics", files, tmp_path / "made.toml", seconds=seconds, **times)
    said = re.search(rf"{what} ([\d.]+),.* so that the measured round is met \(fitted\)$", made.times)
    assert said is not None
    assert float(said[1]) == pytest.approx(factor, rel=0.1)
    comparison = specfleet.compare_load(made)
    assert comparison is not None
    (row,) = [row for row in comparison.rows if row.quantity == "time of a round, ms"]
    assert row.kind == "input"
    assert row.error == pytest.approx(0, abs=0.04)


def test_a_plan_keeps_the_fit_for_all_methods(tmp_path: Path) -> None:
    files, seconds = slower(tmp_path, 1.0, 1.8)
    times: dict[str, Any] = {"target": AT, "draft": HEAD, "seconds": seconds}
    made = specfleet.import_record("vllm-metrics", files, tmp_path / "made.toml", **times)
    server: Any = made.scenario.profile
    small = "llama-3.2-1b"
    assert made.scenario.verifiers.max_num_batched_tokens == 8192, "as a plan has it"
    assert server.server.requests == 120
    found = specfleet.plan(
        tmp_path / "made.toml", {"drafters.depth": 4, "workload.new_tokens": 16}, draft=["lookup", small], jobs=1,
        acceptance=["lookup=1.5@3", f"{small}=0.7"], in_flight="2,4", slo="ttft_p99=9s",
    )  # fmt: skip
    made_of: dict[str, Any] = dict(zip((row.method.split()[0] for row in found.best()), found.scenarios, strict=False))
    of_small = made_of[small].profile
    assert (made_of[HEAD].profile, len(made_of)) == (server, 4)
    acceptance: Any = made.scenario.acceptance
    reached = acceptance.reached()
    deeper = made_of[HEAD].acceptance.reached()[: DEPTH + 1]
    assert deeper == pytest.approx([*reached, reached[-1] * rate_of_mean(1 + reached.sum(), DEPTH)])
    place = placed_of(AT, "vllm")
    estimate = estimated_profile(place, beside(place, shape_of(small)))
    assert of_small.draft == estimate.draft.slowed(server.server.slower["draft"])
    assert of_small.verify == estimate.verify
    said = " ".join(found.lines)
    assert "as now" not in said  # a depth is set
    alone = specfleet.plan(tmp_path / "made.toml", {"workload.new_tokens": 16}, vary="drafters.depth=3", in_flight=4)
    assert re.search(
        r"; now 3: no change needed.*fit assumes: at 4 .*: 3 best \(a token takes longer by \d\d% when",
        str(alone.lines),
    )
    assert "goals: 99% of requests get their first token within 9 s: at 2 in flight met, " in said
    assert "vllm serve m " in said  # the name in the scrape, and none of its limits
    assert "--max-" not in said
    with pytest.raises(specfleet.InputError, match=r"lookup=\.\.\.: missing"):
        specfleet.plan(tmp_path / "made.toml", draft="lookup", in_flight=4)


def test_a_request_takes_no_longer_outside_steps_than_ttft_leaves(tmp_path: Path) -> None:
    files, seconds = slower(tmp_path, 1.0, 1.0)
    times: dict[str, Any] = {"target": AT, "draft": HEAD, "seconds": seconds}
    fitted, estimated = (
        specfleet.import_record("vllm-metrics", files, tmp_path / "made.toml", fit=fit, **times)
        for fit in (True, False)
    )
    load, *profiles = fitted.load, fitted.scenario.profile, estimated.scenario.profile
    assert load is not None
    assert load.ttft_s is not None
    assert load.prefill_s is not None
    outside = [profile.request_s for profile in profiles if isinstance(profile, HardwareProfile)]
    assert outside[0] == pytest.approx(load.ttft_s.mean - load.prefill_s.mean)
    assert outside[0] < outside[1]


def test_a_round_far_from_its_estimate_asks_for_the_device(tmp_path: Path) -> None:
    files, seconds = slower(tmp_path, 1.0, 1.0)
    times: dict[str, Any] = {"target": "llama-3.2-1b@h100", "draft": "lookup"}
    made = specfleet.import_record("vllm-metrics", files, tmp_path / "made.toml", seconds=seconds, **times)
    assert re.search(r"a round takes \S+ times its estimate: are models, device and precision those", made.times)


def test_a_server_drafts_beyond_its_heads_positions(tmp_path: Path) -> None:
    files, seconds = slower(tmp_path, 1.0, 1.0, prompt_tokens=2600, streams=4, requests=40)
    times: dict[str, Any] = {"target": AT, "draft": HEAD}
    made = specfleet.import_record("vllm-metrics", files, tmp_path / "made.toml", seconds=seconds, **times)
    assert any(f"{HEAD} has 2048 positions by its config, and texts here have up to" in note for note in made.notes)
    assert specfleet.compare_load(made) is not None
