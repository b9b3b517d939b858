"""Unlike models in one fleet: each station runs its own, and those that do not go together are refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from specfleet.engine.launch.serve import serve
from specfleet.engine.node.build import check_models, largest_vocabulary, new_drafter, with_positions
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.replayed.continuations import continuations_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.show import describe_fleet
from tests.helpers.pairs import pair_scenario
from tests.helpers.plain import plain_outputs

GOODSPEED = {"late": "wait", "allocate": {"policy": "goodspeed", "budget": 6}}


def unlike(tiny: Path, drafting: str = "target kin", verifying: str = "target kin", **tables: Any) -> Scenario:
    """A fleet whose stations have these models of the tiny pair, in order."""
    for side, names in (("drafters", drafting), ("verifiers", verifying)):
        first, *others = [str(tiny / name) for name in names.split()]
        tiers = [{"first": number, "model": model} for number, model in enumerate(others, start=2)]
        tables[side] = {"count": 1 + len(others), "model": first, "tiers": tiers} | tables.get(side, {})
    return pair_scenario(tiny, **tables)


def test_each_station_runs_its_own_model(tiny: Path) -> None:
    """Streams are dealt so that each drafter is its target's model, and every draft is accepted."""
    scenario = unlike(tiny)
    served = serve(scenario)
    assert served.outputs == plain_outputs(scenario)
    assert replay(served.run) == []
    verified = served.run.frame().query("event == 'done' and kind == 'verify' and tokens > 0")
    assert set(verified.station) == {"verifier.1", "verifier.2"}
    assert (verified.accepted == verified.tokens).all()


def test_goodspeed_runs_unlike_drafters(tiny: Path) -> None:
    """One of them is the target's model, whose drafts all have a ratio of 1."""
    served = serve(unlike(tiny, "kin target", "target", verifiers=GOODSPEED, workload={"temperature": 1.0}))
    drafted = served.run.frame().query("event == 'done' and kind == 'verify' and tokens > 0")
    ratios = [drafted[drafted.tag % 2 == number].ratio for number in range(2)]
    assert ratios[0].max() < 0.999
    assert ratios[1].min() > 0.999


def test_replayed_targets_have_texts_of_their_own_models(tiny: Path, tmp_path: Path) -> None:
    scenario = unlike(tiny, "kin", "target kin", verifiers={"kind": "replayed"})
    fleet, plain = resolve(scenario), plain_outputs(scenario)
    every = continuations_of(fleet, tmp_path)
    assert {number: text.tokens[: len(plain[number])] for number, text in enumerate(every)} == plain
    second = continuations_of(fleet, tmp_path, [1])
    assert [text.tokens for text in second] == [text.tokens if number % 2 else [] for number, text in enumerate(every)]


def test_a_host_needs_the_models_of_its_own_stations(tiny: Path) -> None:
    fleet, said = resolve(unlike(tiny, "absent kin", "absent target")), list[str]()
    check_models(with_positions(fleet), said.append)
    assert [line.split(" is not")[0] for line in said] == [
        f"note: {side}.model = {str(tiny / 'absent')!r}" for side in ("drafters", "verifiers")
    ]
    assert [bool(prompt) for prompt in prompts_of(fleet, [1])] == [False, True] * 3
    assert new_drafter(fleet, number=1).name.endswith("kin")
    assert largest_vocabulary(fleet) == 40


def test_shown_stations_have_their_models(tiny: Path) -> None:
    rows = describe_fleet(resolve(unlike(tiny, "kin", "target kin target")))
    models = {place: Path(value).name for place, what, value in rows if what == "model"}
    assert models == {"drafter": "kin", "verifier.1": "target", "verifier.2": "kin", "verifier.3": "target"}


def changed(folder: Path, source: Path, **keys: Any) -> None:
    """Copy a model without its weights, with other keys in its config.json."""
    folder.mkdir()
    content = json.loads((source / "config.json").read_text()) | keys
    (folder / "config.json").write_text(json.dumps(content))


EAGLE, LOOKUP = ({"drafters": {"kind": kind}} for kind in ("eagle", "lookup"))


@pytest.mark.parametrize(
    ("drafters", "targets", "tables", "message"),
    [
        ("kin absent", "target", {}, r"^drafters\.tiers: model = '.*absent': .* holds no config\.json"),
        ("kin", "target absent", {}, r"^verifiers\.tiers: model = '.*absent'"),
        ("kin wide", "target", {}, r"^drafters\.model = .* and drafters\.tiers: model = .*wide' do not share"),
        ("kin", "target wide", {}, r"^verifiers\.model = .* and verifiers\.tiers: model = .*wide' do not share"),
        ("kin", "target wide", LOOKUP, r"^verifiers\.model = .*vocabularies of 40 and 44"),
        ("kin", "target short", {}, r"short has 30 positions"),
        ("head head3", "target", EAGLE, r"^drafters\.tiers: .*: size and layers \(32, \(0, 1, 2\)\), not \(32, \(\)\)"),
        ("head", "target thin", EAGLE, r"beside verifiers\.tiers: .*thin' reads other hidden states .* \(16, \(\)\)"),
    ],
)
def test_models_that_do_not_go_together_are_named(
    tiny: Path, tmp_path: Path, drafters: str, targets: str, tables: dict[str, Any], message: str
) -> None:
    for name in ("target", "kin", "head", "head3"):
        (tmp_path / name).symlink_to(tiny / name)
    shutil.copy(tiny / "prompts.jsonl", tmp_path)
    changed(tmp_path / "wide", tiny / "kin", vocab_size=44)
    changed(tmp_path / "short", tiny / "kin", max_position_embeddings=30)
    changed(tmp_path / "thin", tiny / "target", hidden_size=16)
    with pytest.raises(InputError, match=message):
        serve(unlike(tmp_path, drafters, targets, **tables))


@pytest.mark.parametrize(
    ("line", "what"), [("[1, 2", "not JSON: .*"), ('{"prompt": 3}', ".*"), ('{"text": "a"}', "has no prompt")]
)
def test_a_wrong_line_of_prompts_shows_the_form(tiny: Path, tmp_path: Path, line: str, what: str) -> None:
    (tmp_path / "mine.jsonl").write_text(f'{{"prompt_ids": {[1] * 16}}}\n{line}\n')
    scenario = unlike(tiny, workload={"prompts": str(tmp_path / "mine.jsonl"), "prompt_tokens": 16, "requests": 2})
    with pytest.raises(
        InputError, match=rf'mine.jsonl, line 2: {what}; write {{"prompt": "TEXT"}} or .* in each line$'
    ):
        prompts_of(resolve(scenario))
