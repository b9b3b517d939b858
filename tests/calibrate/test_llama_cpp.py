"""llama.cpp's metrics, as its server wrote them after six answers of 64 tokens: xllamacpp 2026.10, drafts of 4."""

import re
from pathlib import Path

import pytest

import specfleet
from specfleet.calibration.readers.llama_cpp_metrics import read_llama_cpp_metrics
from specfleet.fleet.acceptance.models import PerPosition
from specfleet.fleet.errors import InputError
from tests.helpers.readings import LLAMA_CPP as SCRAPE
from tests.helpers.readings import counted, write

PLAIN = re.sub(r"llamacpp:spec_decode.*\n", "", SCRAPE)


def test_a_real_scrape_has_acceptance_and_the_time_of_a_token(tmp_path: Path) -> None:
    recording = read_llama_cpp_metrics([write(tmp_path / "metrics.txt", SCRAPE)])
    assert counted(recording) == (155, 210, 4)
    assert isinstance(recording.counts.acceptance, PerPosition)
    assert recording.counts.acceptance.histogram == (83, 15, 14, 5, 38)
    assert recording.load is not None
    assert recording.load.round_s == pytest.approx(0.999141 / 384 * (1 + 210 / 155))
    assert recording.load.notes == (
        "19 of 384 tokens are no round's: first ones of answers, and those of steps without a draft",
    )


def test_counts_between_two_scrapes_are_differences(tmp_path: Path) -> None:
    before, after = write(tmp_path / "before.txt", SCRAPE), re.sub(r"(_total\S* )([\d.]+)", _doubled, SCRAPE)
    after = after.replace("n_busy_slots_per_decode 1", "n_busy_slots_per_decode 2.5")  # a mean since the start
    recording = read_llama_cpp_metrics([before, write(tmp_path / "after.txt", after)])
    assert counted(recording)[:2] == (155, 210)
    assert recording.load is not None
    assert recording.load.running == 4
    with pytest.raises(InputError, match="a restart"):
        read_llama_cpp_metrics([tmp_path / "after.txt", before])


def _doubled(found: re.Match[str]) -> str:
    return f"{found[1]}{2 * float(found[2])}"


def test_a_server_without_drafts_has_a_load_only(tmp_path: Path) -> None:
    recording = read_llama_cpp_metrics([write(tmp_path / "metrics.txt", PLAIN)])
    assert recording.counts is None
    assert recording.load is not None
    assert recording.load.round_s == pytest.approx(0.999141 / 384)


def test_its_scenario_runs_at_once(tmp_path: Path) -> None:
    made = specfleet.import_record("llama-cpp-metrics", write(tmp_path / "metrics.txt", SCRAPE), tmp_path / "mine.toml")
    tpot_s = specfleet.simulate(made.scenario).metrics["tpot_s"].value
    assert tpot_s == pytest.approx(0.999141 / 384, rel=0.1)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('position="3"} 38', 'position="3"} 39', r"accepted_tokens = 210 contradicts the sum over its positions = 211"),
        (
            "tokens_predicted_total 384",
            "tokens_predicted_total 364",
            r"= 364 is less than .* = 155 \+ 210",
        ),
        ("tokens_predicted_total 384", "tokens_predicted_total 0", r"tokens_predicted_total = 0; needs answers"),
        ("llamacpp:tokens_predicted_total 384\n", "", r"lacks llamacpp:tokens_predicted_total"),
        ("drafts_total 155", "drafts_total 0", r"accepted_tokens"),
        ("llamacpp:spec_decode_num_drafts_total 155\n", "", r"lacks"),
        ("drafts_total 155", "drafts_total 155.5", r"= 155\.5; allowed: whole numbers"),
    ],
)
def test_a_scrape_that_contradicts_itself_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in SCRAPE
    with pytest.raises(InputError, match=says):
        read_llama_cpp_metrics([write(tmp_path / "metrics.txt", SCRAPE.replace(old, new))])
