"""Continuations of replayed targets: each prompt is decoded once, whatever fleets ask for it."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from specfleet.engine.replayed import continuations as module
from specfleet.engine.replayed.continuations import continuations_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from tests.helpers.pairs import drafters_of, pair_scenario


def of(scenario: Scenario, folder: Path, requests: int, new_tokens: int = 20) -> list[tuple[list[int], list[int]]]:
    workload = msgspec.structs.replace(scenario.workload, requests=requests, new_tokens=new_tokens)
    fleet = resolve(msgspec.structs.replace(scenario, workload=workload))
    return [(each.prompt, each.tokens) for each in continuations_of(fleet, folder)]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of prompts of each decoding."""
    counts: list[int] = []
    greedily = module.continue_greedily

    def counted(model: object, prompts: Sequence[Sequence[int]], *how: object) -> module.Decoded:
        counts.append(len(prompts))
        return greedily(model, prompts, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "continue_greedily", counted)
    return counts


def test_only_new_prompts_are_decoded(tiny: Path, tmp_path: Path, decoded: list[int]) -> None:
    scenario = pair_scenario(tiny)
    few, all_of_them = of(scenario, tmp_path, 3), of(scenario, tmp_path, 18)
    assert decoded == [3, 15]
    assert all_of_them[:3] == few
    assert of(scenario, tmp_path, 18) == all_of_them
    assert of(scenario, tmp_path, 2) == few[:2]
    assert decoded == [3, 15]
    apart = of(scenario, tmp_path / "apart", 18)
    assert apart == all_of_them
    assert len(list(tmp_path.glob("*.npz"))) == 1


def test_longer_texts_are_decoded_anew(tiny: Path, tmp_path: Path, decoded: list[int]) -> None:
    scenario = pair_scenario(tiny)
    short, long = of(scenario, tmp_path, 3), of(scenario, tmp_path, 2, new_tokens=30)
    assert decoded == [3, 2]
    assert [tokens[: len(short[0][1])] for _, tokens in long] == [tokens for _, tokens in short[:2]]
    assert of(scenario, tmp_path, 3)[:2] == long, "what is kept is long enough"


def test_granted_drafts_may_be_longer_than_the_depth(tiny: Path, tmp_path: Path) -> None:
    (one,) = of(pair_scenario(tiny, verifiers={"allocate": {"policy": "fixed", "depth": 40}}), tmp_path, 1)
    assert len(one[1]) == 20 + 40 + 1


def test_another_target_has_continuations_of_its_own(tiny: Path, tmp_path: Path, decoded: list[int]) -> None:
    scenario = pair_scenario(tiny)
    of(scenario, tmp_path, 3)
    kin = msgspec.structs.replace(scenario.verifiers, model=str(tiny / "kin"))
    of(msgspec.structs.replace(scenario, verifiers=kin), tmp_path, 3)
    of(pair_scenario(tiny, drafters=drafters_of(tiny, "EAGLE")), tmp_path, 3)
    assert decoded == [3, 3, 3]


def test_a_target_without_weights_is_an_error_before_decoding(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny / "target" / "config.json").read_bytes())
    empty = msgspec.structs.replace(pair_scenario(tiny).verifiers, model=str(tmp_path))
    with pytest.raises(InputError, match="no weights"):
        of(msgspec.structs.replace(pair_scenario(tiny), verifiers=empty), tmp_path, 3)
