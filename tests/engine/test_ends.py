"""Texts that end by themselves: the engine stops where transformers' generation does, and commits nothing after it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import StopStringCriteria

from engine.decoding.decode import decode_batch, decode_plain, decode_speculatively
from engine.decoding.draft import Drafter
from engine.decoding.ends import Ends
from engine.decoding.models import load_model
from engine.decoding.rules import Rule
from engine.decoding.sampling import Sampling
from engine.decoding.verify import Target
from engine.launch.serve import serve
from engine.node.batch import serve_batch
from engine.node.colocated import serve_colocated
from engine.node.ends import ends_of, surfaces_of
from engine.node.prompts import prompts_of
from fleet.errors import InputError
from fleet.policies.shapes import CHAIN, Shape, dynamic, tree
from fleet.records.metrics import measure
from fleet.records.replay import replay
from fleet.records.run import Run, write_run
from fleet.records.tables import commits_of
from fleet.scenario.reading import change_scenario
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.workload import read_ends, streams_of
from sim.run import simulate
from tests.engine.test_batches import RULES
from tests.helpers.endings import END_TOKENS, STOPS, generated, new_tokenizer, write_ending_target
from tests.helpers.marks import slow
from tests.helpers.pairs import VOCABULARY, drafters_of, pair_scenario
from tests.helpers.stars import repeatable

ASKED = [(False, ()), (True, tuple(STOPS)), slow(False, ("ab", "éa"))]
tokens = st.integers(0, VOCABULARY - 1)
texts = st.lists(tokens, min_size=1, max_size=40)
stop_strings = st.lists(st.text("abéc ", min_size=1, max_size=6), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def ending(tiny: Path) -> Path:
    """The folder of a target whose texts end by themselves."""
    return write_ending_target(tiny)


@repeatable
@given(
    prompt=texts, text=texts, stops=stop_strings, end=st.sets(tokens, max_size=3), rounds=st.lists(st.integers(1, 6))
)
def test_a_text_ends_where_transformers_criteria_say_however_it_is_cut_into_rounds(
    prompt: list[int], text: list[int], stops: list[str], end: set[int], rounds: list[int]
) -> None:
    criterion = StopStringCriteria(new_tokenizer(), stops)
    wanted = next(
        (
            number
            for number in range(1, len(text) + 1)
            if text[number - 1] in end or bool(criterion(torch.tensor([prompt + text[:number]]), None))
        ),
        0,
    )
    ends = Ends(frozenset(end), tuple(stop.encode() for stop in stops), surfaces_of(new_tokenizer()))
    committed, found, left = list(prompt), 0, list(rounds)
    while not found and len(committed) < len(prompt) + len(text):
        added = text[len(committed) - len(prompt) :][: left.pop() if left else 3]
        after = ends.after(committed, added)
        found = len(committed) - len(prompt) + after if after else 0
        committed += added
    assert found == wanted


def ending_scenario(
    tiny: Path, target: Path, ignore_eos: bool, stop: tuple[str, ...], **tables: dict[str, Any]
) -> Scenario:
    """The tiny pair's kin drafts for `target`, whose texts may end: a star, or a batch where `tables` has one."""
    given: dict[str, dict[str, Any]] = {
        "drafters": {"model": str(tiny / "kin"), "depth": 5},
        "verifiers": {"model": str(target), "count": 1 if "batch" in tables else 2},
        "workload": {"ignore_eos": ignore_eos, "stop": list(stop), "new_tokens": 30, "requests": 8},
    }
    return pair_scenario(tiny, **(tables | {name: table | tables.get(name, {}) for name, table in given.items()}))


def in_one_process(scenario: Scenario) -> Scenario:
    shared = {"drafters.device": "host", "verifiers.device": "host", "devices.host.sharing": "one-process"}
    return change_scenario(scenario, shared)


def batch_of(rule: str) -> dict[str, Any]:
    return {"rule": RULES[rule] | {"size": 3} | ({"window": 6} if rule == "ExSpec" else {})}


def wanted_of(scenario: Scenario) -> dict[int, list[int]]:
    fleet = settle(scenario)
    prompts, workload = prompts_of(fleet), scenario.workload
    return {
        request.number: generated(
            Path(scenario.verifiers.model), tuple(prompts[request.number][: request.prompt_tokens]),
            request.new_tokens, workload.ignore_eos, workload.stop,
        )
        for requests in streams_of(fleet).values()
        for request in requests
    }  # fmt: skip


def check_ends(scenario: Scenario, run: Run, outputs: dict[int, list[int]]) -> None:
    """Texts are transformers' own, the log replays, and records tell of exactly these tokens."""
    wanted = wanted_of(scenario)
    assert outputs == wanted
    asked = {request.number: request.new_tokens for many in streams_of(settle(scenario)).values() for request in many}
    assert any(len(text) < asked[request] for request, text in wanted.items())
    assert replay(run) == []
    committed = commits_of(run.columns()).frame().groupby(["tag", "request"]).committed.sum()
    assert {request: int(count) for (_, request), count in committed.items()} == {
        request: len(text) for request, text in wanted.items()
    }


@pytest.mark.parametrize(("ignore_eos", "stop"), ASKED)
@pytest.mark.parametrize("kind", ["chain", "tree", slow("dynamic tree"), slow("EAGLE"), "EAGLE tree", "prompt lookup"])
def test_a_star_ends_its_texts_where_generation_does(
    tiny: Path, ending: Path, kind: str, ignore_eos: bool, stop: tuple[str, ...]
) -> None:
    drafters = {} if kind == "chain" else drafters_of(tiny, kind)
    scenario = in_one_process(ending_scenario(tiny, ending, ignore_eos, stop, drafters=drafters))
    check_ends(scenario, *serve_colocated(scenario, prompts_of(settle(scenario))))


def test_so_does_a_target_without_a_drafter(tiny: Path, ending: Path) -> None:
    scenario = ending_scenario(tiny, ending, False, ("ab",), drafters={"count": 0}, workload={"requests": 4})
    scenario = in_one_process(scenario)
    check_ends(scenario, *serve_colocated(scenario, prompts_of(settle(scenario))))


@pytest.mark.parametrize(("ignore_eos", "stop"), ASKED)
@pytest.mark.parametrize("kind", ["chain", slow("tree"), slow("EAGLE"), slow("prompt lookup")])
@pytest.mark.parametrize("rule", RULES)
def test_so_does_every_row_of_a_batch(
    tiny: Path, ending: Path, rule: str, kind: str, ignore_eos: bool, stop: tuple[str, ...]
) -> None:
    mixed = {"new_tokens": {"low": 4, "high": 30}, "prompt_tokens": {"low": 6, "high": 16}}
    drafters = {} if kind == "chain" else drafters_of(tiny, kind)
    scenario = ending_scenario(tiny, ending, ignore_eos, stop, drafters=drafters, batch=batch_of(rule), workload=mixed)
    batched = serve_batch(scenario, prompts_of(settle(scenario)))
    check_ends(scenario, batched.run, batched.outputs)


@pytest.mark.parametrize("kind", ["EAGLE", slow("tree")])
@pytest.mark.parametrize("rule", RULES)
def test_a_text_that_ends_with_its_first_token_leaves_a_batch_whole(
    tiny: Path, ending: Path, rule: str, kind: str
) -> None:
    """Some requests are complete with their prefill, before the drafter has read their prompt."""
    whole = wanted_of(ending_scenario(tiny, ending, True, ()))
    ends = sorted({text[0] for text in whole.values()})[::2]
    folder = tiny / "ending-at-once"
    if not folder.is_dir():
        shutil.copytree(ending, folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    scenario = ending_scenario(tiny, folder, False, (), drafters=drafters_of(tiny, kind), batch=batch_of(rule))
    batched = serve_batch(scenario, prompts_of(settle(scenario)))
    assert replay(batched.run) == []
    assert min(map(len, batched.outputs.values())) == 1
    for request, text in whole.items():
        end = next((number for number, token in enumerate(text, start=1) if token in ends), None)
        assert batched.outputs[request] == text[:end]


@pytest.mark.parametrize(
    ("rule", "shape"),
    [("rejection", CHAIN), ("match", tree(3, 1)), slow("rejection", tree(3, 1)), ("top-k", dynamic(3, 6))],
)
def test_sampled_texts_hold_nothing_after_their_end_and_are_those_that_would_have_gone_on(
    tiny: Path, ending: Path, rule: Rule, shape: Shape
) -> None:
    """With the same random numbers a text that may end is the beginning of the one that may not."""
    model, small = (load_model(str(folder), "target", "float64") for folder in (ending, tiny / "kin"))
    ends = Ends(frozenset(END_TOKENS), (b"bb",), surfaces_of(new_tokenizer()))
    for seed in range(5):
        sampling, prompt = Sampling(1.3), np.random.default_rng(seed).integers(VOCABULARY, size=9).tolist()
        long, short = (
            decode_speculatively(
                Target(model, rule, ends=known), Drafter(small, shape, rule), prompt, 40, 4, sampling, seed
            )[0]
            for known in (Ends(), ends)
        )
        cut = ends.after(prompt, long)
        assert short == (long[:cut] if cut else long)


def test_rows_side_by_side_and_plain_decoding_end_alike(tiny: Path, ending: Path) -> None:
    scenario = ending_scenario(tiny, ending, False, ("ab",))
    ends, model = ends_of(settle(scenario)), load_model(str(ending), "target", "float64")
    small = load_model(str(tiny / "kin"), "drafter", "float64")
    prompts, wanted = prompts_of(settle(scenario)), wanted_of(scenario)
    beside, _ = decode_batch(Target(model, ends=ends), Drafter(small), prompts, 30, 4)
    for number, prompt in enumerate(prompts):
        assert decode_plain(Target(model, ends=ends), prompt, 30) == wanted[number] == beside[number]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chain", "EAGLE tree"])
def test_replayed_targets_end_their_texts_where_real_ones_do(tiny: Path, ending: Path, kind: str) -> None:
    quick = {"base_s": 0.001}
    drafters = {} if kind == "chain" else drafters_of(tiny, kind)
    kin = tiny / "kin-with-tokenizer"  # processes compare the tokenizers of both sides
    if not kin.exists():
        shutil.copytree(tiny / "kin", kin)
        shutil.copy(ending / "tokenizer.json", kin)
    real = ending_scenario(tiny, ending, False, ("ab",), drafters={"model": str(kin)} | drafters)
    replayed = change_scenario(
        real, {"profile": {"name": "stated", "draft": quick, "verify": quick}, "verifiers.kind": "replayed"}
    )
    runs = [serve(scenario, tiny).run for scenario in (real, replayed)]
    lengths = [commits_of(run.columns()).frame().groupby("request").committed.sum().to_dict() for run in runs]
    assert lengths[0] == lengths[1] == {request: len(text) for request, text in wanted_of(real).items()}
    assert [replay(run) for run in runs] == [[], []]


def test_the_simulator_ends_requests_where_a_run_did_and_counts_them_as_complete(
    tiny: Path, ending: Path, tmp_path: Path
) -> None:
    scenario = in_one_process(ending_scenario(tiny, ending, False, ("ab",)))
    run, outputs = serve_colocated(scenario, prompts_of(settle(scenario)))
    write_run(run, tmp_path / "run.parquet")
    ended = {request: len(text) for request, text in outputs.items() if len(text) < 30}
    assert {n: length for n, length in read_ends(tmp_path / "run.parquet").items() if length < 30} == ended
    quick = {"base_s": 0.001}
    played = simulate(
        change_scenario(
            scenario,
            {
                "workload.ends": str(tmp_path / "run.parquet"),
                "profile": {
                    "name": "stated",
                    "draft": quick,
                    "verify": quick,
                    "decode": quick,
                    "verify_prefill": quick,
                },
                "acceptance": {"model": "geometric", "beta": 0.7},
                "measure.warm_up_share": 0.0,
                "verifiers.count": 1,
            },
        )
    )
    assert replay(played) == []
    committed = commits_of(played.columns()).frame().groupby("request").committed.sum().to_dict()
    assert committed == {request: len(text) for request, text in outputs.items()}
    assert measure(played)["requests"].value == len(outputs)


def test_a_target_that_states_no_end_of_text_is_refused_in_one_line(tiny: Path) -> None:
    for changes, message in (
        ({"workload.ignore_eos": False}, "states no end-of-text token"),
        ({"workload.stop": ["x"]}, "has no tokenizer"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            ends_of(settle(change_scenario(pair_scenario(tiny), changes)))
        assert "\n" not in str(caught.value)


def test_the_end_of_text_is_the_tokenizers_where_the_model_states_none(tiny: Path, ending: Path) -> None:
    assert ends_of(settle(ending_scenario(tiny, ending, False, ()))).tokens == frozenset(END_TOKENS)
    folder = tiny / "silent"
    folder.mkdir()
    for file in ending.iterdir():
        if file.name != "generation_config.json":
            (folder / file.name).write_bytes(file.read_bytes())
    assert ends_of(settle(ending_scenario(tiny, folder, False, ()))).tokens == {new_tokenizer().eos_token_id}
