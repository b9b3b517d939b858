"""The page of the equations: `explore.html` and its scripts show what `analytic` says of like targets, and move it."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from shlex import quote
from string import Template
from typing import Any

from msgspec.structs import asdict, replace

from specfleet.experiments.notes import notes_on_prediction
from specfleet.fleet.acceptance.fits import fit_beta_geometric
from specfleet.fleet.acceptance.models import BetaGeometric, Geometric, expected_accepted
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import check_writable, write_file
from specfleet.fleet.scenario.changes import Changes, pairs_of
from specfleet.fleet.scenario.facts import accepts, plain_step_s
from specfleet.fleet.scenario.readers import is_set
from specfleet.fleet.scenario.reading import scenario_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.sides import known_profiles
from specfleet.fleet.scenario.writing import changed, toml
from specfleet.fleet.stations.messages import Draft, DraftRequest
from specfleet.fleet.stations.payload import HIDDEN_BYTES, sizes_of
from specfleet.fleet.stations.star import draft_s, star_inputs
from specfleet.fleet.times.profile import read_profile
from specfleet.sim.predict import not_of_a_star, predict_fleet

HERE = Path(__file__).parent
FIXED = ("drafters.admit", "drafters.lease_s", "drafters.shape", "verifiers.patience_s", "verifiers.tiers",
         "workload.streams")  # fmt: skip
"""Keys that make a fleet no star of like targets and chains at some settings of the page."""


def explore(
    scenario: str | Path = "star", out: str | Path | None = None, changes: Changes | None = None, **keys: Any
) -> str:
    """Return one self-contained HTML page that moves what the equations say, and write it to `out` if given.

    `scenario`: a file (TOML), the name of a shipped one, or a profile, in a star. `changes` and keywords as in
    `simulate`. Numbers are those of `analytic`; the page prints the command that simulates them. Raises InputError for
    what is no star of like targets.

    >>> import specfleet
    >>> specfleet.explore("rtx-4090", verifiers={"count": 6}).startswith("<!DOCTYPE html>")
    True
    """
    if out is not None:
        check_writable(Path(out))
    pairs, name = [*pairs_of(changes or ()), *keys.items()], str(scenario)
    of_star, typed = in_star(name), {key: quote(f"{key}={toml(value)}") for key, value in pairs if value is not None}
    if of_star:
        own = {} if read_profile(name, Path()).acceptance is None else {"acceptance": None}  # not the star's
        name, pairs = "star", [("profile", name), *own.items(), *pairs]
    chosen = scenario_of(name, pairs)
    fleet = resolve(chosen)
    _refuse(chosen, not_of_a_star(fleet), str(scenario), typed)
    star, given = predict_fleet(fleet), fleet.length_model()
    model = given if isinstance(given, Geometric | BetaGeometric) else fit_beta_geometric(given)
    changed_keys = {key: toml(value) for key, value in pairs if value is not None}
    plain_key = "" if chosen.verifiers.verify or chosen.verifiers.profile else "profile.decode"
    settings = settings_of(fleet, model) | {"scenario": name, "changes": changed_keys, "plain_key": plain_key}
    accepted = accepts(model, fleet.drafters.depth).partition(": ")[0]  # how many follows the sliders
    sources = f"At the start: step times {fleet.basis}, profile {fleet.profile}; acceptance {accepted}"
    page = Template(_text("explore.html")).substitute(
        title=escape(fleet.name),
        sources=escape(f"{sources}{'' if model is given else ', fitted to what was recorded'}."),
        notes="".join(f"<p>{escape(note)}</p>" for note in (*of_star, *notes_on_prediction(chosen, star))),
        settings=json.dumps(settings).replace("<", "\\u003c"),
        style=_text("style.css", "explore.css"),
        scripts=_text("equations.js", "explore.js"),
    )
    if out is not None:
        write_file(Path(out), page)
    return page


def in_star(name: str) -> tuple[str, ...]:
    """Return the note on a profile that is shown in a star; nothing for a scenario."""
    if name not in shipped_files("profiles") and not name.endswith(".json"):
        return ()
    own = ", acceptance" if read_profile(name, Path()).acceptance is None else ""
    words = "a drafter apart from its targets, one request at each"
    return (f"profile {name} in scenario star: {words}; depth{own} and lengths are star's unless --set states them",)


def _refuse(scenario: Scenario, keys: list[str], file: str, typed: dict[str, str]) -> None:
    fixed = keys[:1] or [key for key in FIXED if is_set(scenario, key)]
    if scenario.drafters.kind == "block":
        fixed.append("drafters.kind")  # the page draws a block beside the chain by whose times it is priced
    if any(changed(tier).keys() - {"first", "step"} for tier in scenario.drafters.tiers):
        fixed.append("drafters.tiers")  # the step alone is what a moved S(d) replaces
    if not fixed:
        return
    no_depth = is_set(scenario, "verifiers.allocate") or is_set(scenario, "drafters.overlap")
    varied = "verifiers.count=1:8" if no_depth else f"drafters.depth=1:{scenario.drafters.depth}"
    sets = "".join(f" --set {text}" for key, text in typed.items() if not varied.startswith(f"{key}="))
    first = "step times are inferred from one load, so import again with --target MODEL@DEVICE --draft MODEL, then "
    raise InputError(
        f"scenario {scenario.name!r}: {fixed[0]} has no place on a page that moves N, depth and times of a drafter "
        "apart from like targets, one request at each; for a page of this fleet simulate it: "
        + first * any(profile.inferred_at is not None for profile in known_profiles(scenario))
        + f"specfleet sweep {file} --vary {varied}{sets} -o FOLDER; specfleet report FOLDER -o page.html"
    )


def _text(*files: str) -> str:
    return "".join((HERE / file).read_text(encoding="utf-8") for file in files)


def settings_of(fleet: Fleet, model: Geometric | BetaGeometric) -> dict[str, Any]:
    """Return what `compute` of `equations.js` reads, in seconds, tokens and bytes."""
    depth, times, target, link = fleet.drafters.depth, fleet.drafter_times(0), fleet.verifier_times(0), fleet.link(0)
    depths = range(1, max(16, 2 * depth) + 1)
    fleets = [replace(fleet, acceptance=model, drafters=replace(fleet.drafters, depth=d)) for d in depths]
    overhead_s = target.overhead.woken.mean_s + target.overhead.after.mean_s
    verify = _law("verify", [star_inputs(of).verify_s + overhead_s for of in fleets])
    size_of = sizes_of(fleet)
    one, two = (size_of(Draft(0, 0, 0, 0, d), 0) for d in (1, 2))
    beta = expected_accepted(model, 1)
    return {
        "N": fleet.verifiers.count, "d": depth, "depths": len(depths), "requests": fleet.workload.requests,
        "draft_least_s": times.overhead.queued.mean_s + times.overhead.after.mean_s,
        "slowdown": times.idle.slowdown(0.0), "catch_up_s": times.catch_up_s, **_law("draft", [*map(draft_s, fleets)]),
        "verify_least_s": overhead_s + verify["verify_b_s"], **verify,
        "latency_s": link.time.latency_s, "s_per_byte": link.time.s_per_byte, "bytes_per_token": two - one,
        "bytes": size_of(DraftRequest(0, 0, 0, 0), 0) + 2 * one - two,
        "bytes_per_state": HIDDEN_BYTES * fleet.hidden * (fleet.drafters.kind == "eagle"),
        "plain_s": plain_step_s(fleet, fleet.lengths.middle),
        "model": model.__struct_config__.tag, "beta": beta, "a": 4 * beta, "b": 4 * (1 - beta), **asdict(model),
    }  # fmt: skip


def _law(step: str, times_s: Sequence[float]) -> dict[str, Any]:
    """Return times at depths 1, 2, ... as a + b d, and what a bent law has beyond that."""
    b_s = times_s[1] - times_s[0]
    a_s = max(times_s[0] - b_s, 0.0)
    rest_s = [time_s - a_s - b_s * d for d, time_s in enumerate(times_s, start=1)]
    is_bent = max(map(abs, rest_s)) > 1e-12 * times_s[-1]
    return {f"{step}_a_s": a_s, f"{step}_b_s": b_s, f"{step}_rest_s": rest_s if is_bent else None}
