"""Plans take models, acceptance, links and limits of servers in the words of their users, and drop nothing silently."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import specfleet
from specfleet.cli.plans import print_shipped
from specfleet.experiments.plan.ask import BURSTS, about
from specfleet.experiments.plan.candidates import Asked, Candidate, make_candidates, unstated
from specfleet.experiments.plan.commands import bench_command, server_commands
from specfleet.experiments.plan.deployments import Deployment, Load, Question, estimates
from specfleet.experiments.plan.texts import acceptance_notes, read_acceptances, read_link
from specfleet.fleet.acceptance.models import Geometric, expected_committed, survival
from specfleet.fleet.data.shipped import shipped_models
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from specfleet.fleet.inputs.text import read_toml
from specfleet.fleet.scenario.arrivals import Gamma, Poisson
from specfleet.fleet.scenario.lengths import Between
from specfleet.fleet.scenario.reading import scenario_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario, Workload
from specfleet.fleet.times.step_time import LinkTime
from tests.helpers.plans import candidates

WORDS = read_toml(Path(__file__).parent / "data/as_users_say_it.toml")
TARGET, SMALL, LARGE = "llama-3.1-8b@h100", "llama-3.2-1b", "llama-3.1-70b@4xh100"
LENGTHS = Workload(prompt_tokens=800, new_tokens=about(250))


def made(*drafts: str, target: str = TARGET, **more: Any) -> tuple[list[Candidate], list[str]]:
    words = {"scenario": Scenario(workload=LENGTHS), "acceptance": ("0.7",)} | more
    found, _, notes = make_candidates(Asked(targets=(target,), drafts=drafts, **words))
    return found, notes


@pytest.mark.parametrize(("mean", "depth"), [(2.5, 5), (1.0, 3), (4.0, 3), (1.8, 1), (17.2, 64)])
def test_a_mean_length_is_the_constant_rate_that_yields_it(mean: float, depth: int) -> None:
    (model,) = read_acceptances([f"{mean}@{depth}"]).values()
    assert expected_committed(model, depth) == pytest.approx(mean, rel=1e-9)


def test_what_one_number_assumes_is_said() -> None:
    mean, rate = acceptance_notes(["2.5@5", f"{SMALL}=0.8", "x=.8,.7", "y=a.toml"])
    accepted = "assumes that a draft token is accepted with probability {}% if all before it were"
    assert f"{accepted.format(62.4)}, by 2.5 tokens a round at depth 5 (its bonus token included)" in mean
    assert rate == f"acceptance of {SMALL}: {accepted.format(80)}"


@pytest.mark.parametrize(("text", "said"), WORDS["no_acceptance"])
def test_acceptance_that_is_none_is_refused(text: str, said: str) -> None:
    for name in ("", "a="):
        with pytest.raises(InputError, match=said):
            read_acceptances([name + text])


@pytest.mark.parametrize(("draft", "named", "target", "method"), WORDS["names"])
def test_a_drafter_has_several_names(draft: str, named: str, target: str, method: str) -> None:
    (_, one), _ = made(draft, target=target, acceptance=(f"{named}=0.6",))
    assert one.base.acceptance == Geometric(0.6)
    assert f'"method": "{method}"' in server_commands(one, 2)[0]


def test_missing_acceptance_names_what_is_published_of_the_drafter() -> None:
    said = r"missing; .* position 1: llama-3\.1-8b lookup gsm8k vllm 0\.11, .*'lookup=published:NAME'"
    for target in ("llama-3.1-8b@h100", "qwen3-8b@h100"):
        with pytest.raises(InputError, match=said):
            made("ngram", target=target, acceptance=())
        (_, lookup), _ = made("ngram", target=target, acceptance=("lookup=published:llama-3.1-8b lookup gsm8k vllm",))
        assert survival(lookup.base.acceptance, 1)[-1] == pytest.approx(0.11, abs=1e-3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("draft", "target", "said"), WORDS["no_drafters"])
def test_a_drafter_that_is_none_is_named(draft: str, target: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        made("lookup", draft, target=target)


@pytest.mark.parametrize(("draft", "target", "said"), WORDS["misfits"])
def test_a_drafter_that_does_not_fit_is_left_out(draft: str, target: str, said: str) -> None:
    found, notes = made("lookup", draft, target=target)
    assert [one.name for one in found[:2]] == ["no speculation", "prompt lookup"]
    assert sum(note.startswith(f"left out: {said}") for note in notes) == 1
    with pytest.raises(InputError, match=f"^{said}"):
        made(draft, target=f"{target}:bf16:kv-bf16")


@pytest.mark.parametrize("named", ["drafters/my head", "my head", "MY HEAD", "drafters/my head/config.json"])
def test_acceptance_names_a_drafter_by_its_folder(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("drafters/my head/config.json")
    write_file(file, json.dumps(shipped_models()["eagle3-llama-3.1-8b"]))
    draft = str(file) if named.endswith("json") else str(file.parent)
    (_, one), _ = made(draft, acceptance=(f"{named}=0.6",))
    assert one.base.acceptance == Geometric(0.6)
    write_file(Path("others/my head/config.json"), file.read_text())
    with pytest.raises(InputError, match=r"names several drafters.*drafters/my head, others/my head"):
        made("drafters/my head", "others/my head", acceptance=("my head=0.6",))
    with pytest.raises(InputError, match=r"others/head=...: no drafter is called so; allowed"):
        made(draft, acceptance=("others/head=0.6",))


def test_a_drafter_for_shorter_texts_is_left_out_by_name(tmp_path: Path) -> None:
    """And a server's longest text is at most the positions of its model."""
    write_file(tmp_path / "short/config.json", json.dumps(
        shipped_models()["llama-3.1-8b"] | {"max_position_embeddings": 1080, "rope_scaling": None}))  # fmt: skip
    head = "eagle3-llama-3.1-8b"
    for prompt, depths, said in ((2040, 0, f"left out: {head} on"), (2008, 5, "the target's device beyond depth 5:")):
        scenario = Scenario(workload=Workload(prompt_tokens=prompt, new_tokens=35))
        found, notes = estimates(Question(tuple(candidates(TARGET, head, scenario=scenario)), Load(each=1)))
        assert said in notes[0]
        assert "2048 positions" in notes[0]
        assert max(one.fleet.depth for one in found) == depths
    scenario = Scenario(
        workload=Workload(prompt_tokens=Between(100, 5000, 512.0, 0.6), new_tokens=35)
    )  # a bucket's bound
    _, one = candidates(TARGET, head, scenario=scenario)
    assert "2048 positions by its config, and texts here have up to 5035 tokens: it drafts on" in str(one.accepted)
    assert estimates(Question((one,), Load(each=1)))[1] == []
    (one,) = candidates(f"{tmp_path / 'short'}@h100")
    assert "--max-model-len 1080 " in server_commands(one, 0)[0]


@pytest.mark.parametrize(("accepted", "said"), [
    (("0.7",), True), (("0.7", "lookup=0.7"), False), (("0.7", "eagle3-llama-3.1-8b=0.7"), False),
])  # fmt: skip
def test_an_acceptance_that_lookup_shares_with_a_head_is_said(accepted: tuple[str, ...], said: bool) -> None:
    found, _ = made("eagle3-llama-3.1-8b", "ngram", acceptance=accepted)
    text = "; BUT prompt lookup has the acceptance of eagle3-llama-3.1-8b, for none was stated: "
    assert unstated(found).startswith(text) is said
    assert unstated([one for one in found if one.method != "lookup"]) == ""
    assert unstated(made("ngram", "suffix")[0]) == ""


def test_links_are_compared_as_candidates() -> None:
    found, _ = made(f"{SMALL}@l4", link="0.1ms, 1ms,25Gbit+50us")
    assert [one.name for one in found if one.method == "apart"] == [
        f"{SMALL}@l4, link {link}" for link in ("0.1ms", "1ms", "25Gbit+50us")
    ]
    assert [one.base.link for one in found][2:] == [read_link(link) for link in ("0.1ms", "1ms", "25Gbit+50us")]
    with pytest.raises(InputError, match="several links are compared under one load"):
        specfleet.plan(target=TARGET, draft=f"{SMALL}@l4", acceptance=0.7, link="1ms,2ms", in_flight="1,2")
    for wrong in ("1ms,,2ms", "-1ms", "2e9s", "1e400Gbit"):
        with pytest.raises(InputError, match="up to 1e9s"):
            made(f"{SMALL}@l4", link=wrong)


def test_a_link_that_no_option_states_is_noted() -> None:
    for link, said in (
        (None, "link: 0 ms one way to drafters elsewhere, assumed"),
        (LinkTime(0.005), "the scenario's"),
    ):
        scenario = Scenario(workload=LENGTHS, link=link)
        assert said in str(made(f"{SMALL}@l4", scenario=scenario)[1])
        assert "link" not in str(made(f"{SMALL}@l4", scenario=scenario, link="1ms")[1])


def test_a_small_model_runs_on_one_of_the_targets_devices() -> None:
    (_, split), _ = made(SMALL, target=LARGE)
    (_, one, apart), _ = made(f"{SMALL}@1xh100", target=LARGE)
    assert [one.method, apart.method] == ["beside", "apart"]
    assert Deployment(one, 2, 4).devices == {"h100": 8}
    on_four, on_one, elsewhere = (candidate.base.profile for candidate in (split, one, apart))
    passes = [profile.draft.roofline for profile in (on_four, on_one, elsewhere)]  # type: ignore[union-attr]
    assert passes[0] != passes[1] == passes[2]
    assert on_one.kv.drafter_bytes == pytest.approx(4 * on_four.kv.drafter_bytes)  # type: ignore[union-attr]
    assert "released ones start none on 1 of 4 devices" in server_commands(one, 4)[0]


@pytest.mark.parametrize(("changes", "vllm", "sglang"), WORDS["limits"])
def test_a_stated_limit_is_simulated_and_printed(changes: dict[str, Any], vllm: str, sglang: str) -> None:
    keys = {f"verifiers.{name}": value for name, value in changes.items()}
    scenario = scenario_of(Scenario(workload=LENGTHS), keys)
    (usual,), (one,) = candidates(TARGET), candidates(TARGET, scenario=scenario, given=frozenset(keys))
    assert resolve(one.base).verifiers.batching != resolve(usual.base).verifiers.batching
    commands = server_commands(one, 0)
    assert vllm in f"{commands[0]} "
    assert sglang in f"{commands[1]} "


def test_limits_of_a_scenario_file_are_stated(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[verifiers]\nmax_num_seqs = 256\n[workload]\nnew_tokens = 8\nprompt_tokens = 16\n")
    found = specfleet.plan(file, target=TARGET, in_flight=1, jobs=1)
    assert "--max-num-seqs 256 " in found.commands[0]


def test_a_cache_beyond_the_memory_is_refused() -> None:
    scenario = scenario_of(Scenario(workload=LENGTHS), {"verifiers.kv_tokens": 10**7})
    with pytest.raises(InputError, match=r"verifiers.kv_tokens = 10000000: llama-3.1-8b@h100 has memory for \d+"):
        estimates(Question(tuple(candidates(TARGET, scenario=scenario)), Load(each=1)))


def test_a_stated_cache_leaves_room_for_a_drafter() -> None:
    """Measured without a drafter, as vLLM's that fills its devices."""
    scenario = scenario_of(Scenario(workload=LENGTHS), {"verifiers.kv_tokens": 440_000})
    made, left_out = estimates(Question(tuple(candidates(TARGET, "llama-3.2-1b", scenario=scenario)), Load(each=1)))
    caches = {one.fleet.candidate.method: one.fleet.candidate.base.verifiers.kv_tokens for one in made}
    assert [f"a KV cache of {caches['beside']} tokens, for the stated one" in note for note in left_out] == [True]
    assert caches["none"] == 440_000
    assert 100_000 < caches["beside"] < 440_000


def test_a_load_that_nothing_carries_leaves_the_others() -> None:
    asked: dict[str, Any] = {"target": "llama-3.1-8b", "devices": "1xh100", "jobs": 1}
    found = specfleet.plan(Scenario(workload=LENGTHS), arrivals=[1.0, 1e5], **asked)
    assert found.loads == ("1/s",)
    assert any(note.startswith("left out: 1e+05/s: these devices carry") for note in found.notes)
    with pytest.raises(InputError, match="these devices carry"):
        specfleet.plan(Scenario(workload=LENGTHS), arrivals=[1e5, 2e5], **asked)


def test_arrivals_keep_their_burstiness() -> None:
    (one,) = candidates(TARGET)
    for burstiness, arrivals in ((0.5, Gamma(3.0, 0.5)), (1.0, Poisson(3.0))):
        load = Load(per_s=3.0, burstiness=burstiness)
        fleet = Deployment(one, 4)
        scenario = fleet.scenario(load, 2000)
        assert scenario.workload.arrivals == arrivals
        words = shlex.split(bench_command(fleet, load, scenario), comments=True)
        assert words[words.index("--burstiness") + 1] == f"{4 * burstiness:g}"
    gamma = {"process": "gamma", "per_s": 9.0, "burstiness": 0.5}
    changes = {"workload.arrivals": gamma, "workload.new_tokens": 8, "workload.prompt_tokens": 16}
    found = specfleet.plan(None, changes, target=TARGET, arrivals="3/s,5/s", jobs=1)
    assert found.loads == ("3/s (burstiness 0.5)", "5/s (burstiness 0.5)")
    assert BURSTS in found.notes
    for arrivals, options, said in (
        ({"process": "trace", "file": "a.csv"}, {}, "a plan draws its arrivals, poisson or gamma"),
        (gamma, {"in_flight": 8}, "give one of them"),
    ):
        with pytest.raises(InputError, match=said):
            specfleet.plan(None, {"workload.arrivals": arrivals}, target=TARGET, **options)


def test_what_is_left_out_or_has_no_effect_is_noted() -> None:
    keys = {"drafters.order": "priority", "verifiers.patience_s": 1.0}
    scenario = scenario_of(Scenario(workload=LENGTHS), keys)
    _, notes = made(SMALL, scenario=scenario, given=frozenset(keys))
    assert [note.partition(":")[0] for note in notes] == ["acceptance", "drafters.order", "verifiers.patience_s"]
    found, notes = made("llama-3.1-8b@l4:bf16", "llama-3.1-70b@l4", target="llama-3.1-405b@8xh200:fp8")
    assert [one.method for one in found] == ["none", "beside", "apart", "beside"]
    assert sum(note.startswith("left out: llama-3.1-70b in bf16: weights of") for note in notes) == 1
    asked = Asked(Scenario(workload=LENGTHS), (TARGET, "llama-3.1-70b@l4"))
    *_, (note,) = make_candidates(asked)
    assert note.startswith("left out: llama-3.1-70b@l4: ")


@pytest.mark.parametrize("word", ["ngram", "NGRAM", "Lookup"])
def test_servers_words_for_methods_are_known(word: str) -> None:
    (_, lookup), *_ = make_candidates(Asked(Scenario(workload=LENGTHS), (TARGET,), (word,), (f"{word}=.5",)))
    assert lookup.method == "lookup"


def test_what_ships_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for what, name in (("models", "llama-3.1-8b"), ("devices", "h100"), ("engines", "vllm")):
        print_shipped(what)
        assert name in capsys.readouterr().out
        print_shipped(what, as_json=True)
        assert name in json.loads(capsys.readouterr().out)
    with pytest.raises(InputError, match="--list model: nearest: models, devices, engines"):
        print_shipped("model")
