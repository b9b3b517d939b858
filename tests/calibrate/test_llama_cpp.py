"""What llama.cpp's server writes (xllamacpp 2026.10, drafts of 4): metrics, answers, and its log.

The metrics are as they were after six answers of 64 tokens. The answers and the log are of one run: twelve answers of
48 tokens, three at a time. Its metrics counted 256 drafts, 278 accepted tokens, and 42 tokens that are no draft's
round: 12 first ones, so 30 steps had no draft.
"""

import re
from pathlib import Path

import pytest

import specfleet
from specfleet.calibration.readers.llama_cpp import read_llama_cpp, read_llama_cpp_log
from specfleet.calibration.readers.llama_cpp_metrics import read_llama_cpp_metrics
from specfleet.fleet.acceptance.models import PerPosition
from specfleet.fleet.errors import InputError
from tests.helpers.readings import LLAMA_CPP as SCRAPE
from tests.helpers.readings import counted, write

PLAIN = re.sub(r"llamacpp:spec_decode.*\n", "", SCRAPE)
DATA = Path(__file__).parent / "data"
ANSWERS, LOG = DATA / "llama-cpp.jsonl", DATA / "llama-cpp.log"
BY_PLACE = """\
0.06.895.980 I slot print_timing: id  1 | task 0 | prompt eval time =     300.11 ms /    20 tokens (   15.01 ms per token,    66.64 tokens per second)
0.06.895.998 I slot print_timing: id  1 | task 0 |        eval time =    2296.72 ms /   256 tokens (    8.97 ms per token,   111.46 tokens per second)
0.06.896.015 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)
"""  # noqa: E501  # as a server writes it
BY_PLACE_APART = BY_PLACE.replace(
    ", acceptance rate per position", "\n0.06.896.019 T slot print_timing: id  1 | task 0 |      acc per pos"
)
LONG = """\
slot print_timing: id  1 | task 7 | prompt eval time =     300.11 ms /    20 tokens (   15.01 ms per token,    66.64 tokens per second)
slot print_timing: id  1 | task 7 |        eval time =  137340.00 ms / 13735 tokens (   10.00 ms per token,   100.00 tokens per second)
slot print_timing: id  1 | task 7 | draft acceptance = 0.73100 (10234 accepted / 14000 generated), mean len =  3.92
"""  # noqa: E501  # as a server writes it


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
        ("tokens_predicted_total 384", "tokens_predicted_total 364", r"= 364 is less than .* = 155 \+ 210"),
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


def test_answers_and_log_agree_with_the_counters(tmp_path: Path) -> None:
    by_answers, by_log = read_llama_cpp([ANSWERS], depth=4), read_llama_cpp_log([LOG], depth=4)
    assert counted(by_answers)[:2] == (256 + 30, 278) == counted(by_log)[:2]
    assert by_answers.counts.acceptance == by_log.counts.acceptance
    assert sorted(by_answers.lengths) == sorted(by_log.lengths)
    assert by_log.load is not None
    assert (by_log.load.in_flight, by_log.load.max_num_seqs) == (3, 4)
    made = specfleet.import_record("llama-cpp-log", LOG, tmp_path / "mine.toml", depth=4)
    assert specfleet.simulate(made.scenario).metrics["tpot_s"].value == pytest.approx(0.00736, rel=0.06)


def test_logs_of_several_servers_follow_each_other(tmp_path: Path) -> None:
    again = write(tmp_path / "again.log", LOG.read_text())
    one, two = (read_llama_cpp_log(files, depth=4).load for files in ([LOG], [LOG, again]))
    assert one is not None
    assert two is not None
    assert (two.requests, two.in_flight) == (24, one.in_flight)
    assert two.tokens_per_s == pytest.approx(one.tokens_per_s, rel=0.1)


@pytest.mark.parametrize("text", [BY_PLACE, BY_PLACE_APART])
def test_rates_per_position_are_read(tmp_path: Path, text: str) -> None:
    recording = read_llama_cpp_log([write(tmp_path / "server.log", text)])
    assert isinstance(recording.counts.acceptance, PerPosition)  # 87 drafts, of which 70, 55, 42 passed each place
    assert recording.counts.acceptance.histogram == (17 + 1, 15, 13, 42)
    assert counted(recording)[:2] == (87 + 1, 167)


def test_counts_of_five_digits_are_read(tmp_path: Path) -> None:
    recording = read_llama_cpp_log([write(tmp_path / "server.log", LONG)], depth=4)
    assert counted(recording)[:2] == (13735 - 1 - 10234, 10234)


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ("task.n_tokens = 2020", "2000 tokens of prompts came from a cache, and are left out of their lengths"),
        ("n_prompt_tokens = 2020", "2000 tokens of prompts came from a cache, and are left out of their lengths"),
        ("task.n_tokens = 20", ""),
        ("", "1 of 1 answers do not say what a cache had of their prompts: lengths are of tokens that were read"),
    ],
)
def test_a_logs_prompts_are_those_that_were_read(tmp_path: Path, said: str, note: str) -> None:
    before = f"slot update_slots: id  1 | task 0 | new prompt, n_ctx_slot = 4096, n_keep = 0, {said}\n"
    recording = read_llama_cpp_log([write(tmp_path / "server.log", before + BY_PLACE)])
    assert recording.lengths == ((20, 256),)
    assert [one for one in recording.notes if "prompts" in one] == [note] * bool(note)


def test_without_a_depth_it_is_the_least_that_fits_and_said() -> None:
    recording = read_llama_cpp([ANSWERS])
    assert recording.counts.depth == 4
    assert "--depth states it" in recording.counts.notes[0]


def test_answers_without_drafts_have_a_load_only(tmp_path: Path) -> None:
    plain = ANSWERS.read_text().replace('"draft_n": ', '"before": ').replace('"draft_n_accepted": ', '"others": ')
    recording = read_llama_cpp([write(tmp_path / "plain.jsonl", plain)])
    assert recording.counts is None
    assert recording.load is not None
    assert recording.load.requests == 12


def test_a_stop_within_a_draft_cuts_off_accepted_tokens(tmp_path: Path) -> None:
    stopped = '{"timings": {"prompt_n": 9, "prompt_ms": 1, "predicted_n": 4, "predicted_ms": 3, "draft_n": 4, '
    text = stopped + '"draft_n_accepted": 4}, "stop_type": "eos"}'
    recording = read_llama_cpp([write(tmp_path / "one.json", text)], depth=4)
    assert counted(recording)[:2] == (1, 4)
    with pytest.raises(InputError, match=r"2 \+ draft_n_accepted = 6 exceeds predicted_n \+ cut off = 4"):
        read_llama_cpp([write(tmp_path / "one.json", text.replace("eos", "limit"))], depth=4)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"draft_n": 68', '"draft_n": 27', "draft_n_accepted = 28 exceeds draft_n = 27"),
        ('"draft_n": 68', '"draft_n": 80', "draft_n = 80 exceeds depth times steps = 76"),
        ('"predicted_n": 48', '"predicted_n": 20', r"2 \+ draft_n_accepted = 30 exceeds predicted_n .* = 20"),
        ('"predicted_n": 48', '"predicted_n": 51', "ms per token = 5.31 contradicts eval time / tokens = 4.99"),
        ('"predicted_n": 48', '"predicted_n": -1', "predicted_n = -1"),
        ('"predicted_ms": 249.522', '"predicted_ms": "long"', "predicted_ms"),
        ('"timings"', '"times"', "exceeds|no answer"),
    ],
)  # fmt: skip
def test_an_answer_that_contradicts_itself_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    first = ANSWERS.read_text().splitlines()[0]
    assert old in first
    with pytest.raises(InputError, match=says):
        read_llama_cpp([write(tmp_path / "one.jsonl", first.replace(old, new))], depth=4)
