"""Acceptance that others published: its rows, the law between their figures, and which one a plan takes."""

import json
import re

import pytest

from specfleet.cli.plans import print_shipped
from specfleet.experiments.plan.candidates import Asked, make_candidates
from specfleet.fleet.acceptance.models import expected_committed
from specfleet.fleet.acceptance.published import Published, published_rows
from specfleet.fleet.data.shipped import shipped_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.scenario import Scenario

HUB = "meta-llama/Llama-3.1-8B-Instruct@h100"
HEAD = "eagle3-llama-3.1-8b"


def test_published_figures_hold_in_each_row() -> None:
    rows = published_rows()
    assert len(rows) == len(shipped_tables("published")["acceptance"]["rows"])
    for row in rows.values():
        model = row.model()
        assert tuple(model.reached()[: len(row.positions)]) == row.positions
        assert row.source
        for depth, mean in row.means:
            assert expected_committed(model, depth) == pytest.approx(mean, abs=1e-9)


def test_one_mean_is_one_rate() -> None:
    reached = Published("t", "d", "data", "paper", means=((3, 1 + 0.5 + 0.25 + 0.125),)).model().reached()
    assert reached == pytest.approx([0.5, 0.25, 0.125], abs=1e-12)


@pytest.mark.parametrize(
    ("target", "draft", "words", "name"),
    [
        (HUB, HEAD, "GSM8K", "llama-3.1-8b eagle3 gsm8k vllm"),
        (HUB, "ngram", "sharegpt:t0", "llama-3.1-8b lookup sharegpt vllm"),
        ("llama-3.3-70b@4xh100", "llama-3.2-1b@l4", "", "llama-3.3-70b llama-3.2-1b code sglang"),
        ("glm-4.5-air@4xh100", "mtp", "", "glm-4.5-air mtp gpqa vllm"),
    ],
)
def test_a_plan_takes_the_row_and_says_its_source(target: str, draft: str, words: str, name: str) -> None:
    wanted = f"published{words and ':'}{words}"
    made, _, notes = make_candidates(Asked(Scenario(), (target,), (draft,), (wanted,), "1ms" if "@" in draft else ""))
    row = published_rows()[name]
    assert all(one.base.acceptance == row.model() for one in made[1:])
    assert sum(name in note and row.source in note and row.basis in note for note in notes) == 1


@pytest.mark.parametrize(
    ("draft", "words", "message"),
    [
        ("llama-3.2-1b", "", r"no row for llama-3.1-8b with llama-3.2-1b; nearest: [^;,]+, [^;,]+, [^;,]+; .*--list"),
        (HEAD, "mt-bench", r"no row for llama-3.1-8b with eagle3, mt-bench; nearest: [^;,]+, [^;,]+, [^;,]+; "),
        (HEAD, "sharegpt:t1", "no row for llama-3.1-8b with eagle3, sharegpt, t1"),
        (HEAD, "llama-3.1-8b eagle3 vllm", "4 rows fit llama-3.1-8b with eagle3; choose one: published:gsm8k:vllm, "),
        (HEAD, "", "5 rows fit llama-3.1-8b with eagle3; choose one: published:gsm8k:vllm, "),
    ],
)
def test_without_one_row_the_nearest_are_named(draft: str, words: str, message: str) -> None:
    wanted = f"{draft}=published{words and ':'}{words}"
    with pytest.raises(InputError, match=f"^--acceptance {re.escape(wanted)}: {message}"):
        make_candidates(Asked(Scenario(), (HUB,), (draft,), (wanted,)))


@pytest.mark.parametrize(("drafter", "named", "row"), [
    ("eagle3-qwen3-32b", "", "qwen3-8b eagle3 mt-bench vllm"),
    ("pard-qwen3-0.6b", "pard-qwen3-0.6b=", "qwen3-8b pard-2 math500 vllm"),
])  # fmt: skip
def test_a_row_of_another_model_is_borrowed_by_its_whole_name(drafter: str, named: str, row: str) -> None:
    target, words = "qwen3-32b@2xh100", f"{named}published:{row}"
    (_, head), _, notes = make_candidates(Asked(Scenario(), (target,), (drafter,), (words,)))
    assert head.base.acceptance == published_rows()[row].model()
    assert sum("borrowed from another model" in note and note.endswith(": assumed") for note in notes) == 1
    for others in (
        "published:mt-bench",
        f"published:{row.removesuffix(' vllm')}",
        "published:qwen3-8b pard-2 gsm8k vllm",
    ):
        with pytest.raises(InputError, match=r"no row for qwen3-32b .*; DRAFTER='published:WHOLE NAME' borrows"):
            make_candidates(Asked(Scenario(), (target,), (drafter,), (others,)))


def test_rows_are_listed_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    print_shipped("acceptance", as_json=True)
    listed = json.loads(capsys.readouterr().out)
    assert {name: row["source"] for name, row in listed.items()} == {
        name: row.source for name, row in published_rows().items()
    }


def test_stations_without_a_model_have_no_row() -> None:
    with pytest.raises(InputError, match="no station has a name here"):
        make_candidates(Asked(Scenario(profile="a100"), acceptance=("published",)))
