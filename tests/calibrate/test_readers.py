"""Readers of other engines' records read what was recorded; `test_contradictions.py` has what they refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from specfleet.calibration.readers.responses import read_aiperf, read_sglang, read_vllm
from specfleet.calibration.readers.vllm_log import read_vllm_log
from specfleet.fleet.acceptance.models import PerPosition, Recorded
from specfleet.fleet.errors import InputError
from tests.helpers import engines
from tests.helpers.readings import (
    DEPTH,
    LOG,
    READ,
    TELL_DRAFTS,
    WITH_PLAIN_STEPS,
    Sessions,
    aiperf,
    counted,
    full,
    mean_of,
    mixed,
    sglang,
    vllm,
    vllm_list,
    vllm_log,
    write,
)

repeatable = settings(max_examples=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.mark.parametrize("name", READ)
@repeatable
@given(sessions=full)
def test_full_drafts_come_back_as_they_were_recorded(folder: Path, name: str, sessions: Sessions) -> None:
    recording = READ[name](folder, sessions)
    together = [accepted for session in sessions for _, accepted in session]
    assert counted(recording) == (len(together), sum(together), DEPTH)
    assert mean_of(recording) == pytest.approx(1 + sum(together) / len(together), rel=1e-12)
    assert recording.counts.stated in (None, pytest.approx(1 + sum(together) / len(together), abs=1e-4))
    if isinstance(recording.counts.acceptance, PerPosition):
        assert recording.counts.acceptance.histogram == tuple(engines.histogram_of([(0, k) for k in together], DEPTH))


@repeatable
@given(sessions=full)
def test_steps_in_order_are_played_back_in_order(folder: Path, sessions: Sessions) -> None:
    recording = vllm(folder, sessions, "detailed")
    assert recording.counts.acceptance == Recorded(DEPTH, tuple(tuple(k for _, k in session) for session in sessions))


@pytest.mark.parametrize("name", TELL_DRAFTS)
@repeatable
@given(sessions=mixed)
def test_rates_count_drafts_that_reached_the_place(folder: Path, name: str, sessions: Sessions) -> None:
    recording = READ[name](folder, sessions)
    rounds = [pair for session in sessions for pair in session]
    assert counted(recording)[:2] == (len(rounds), sum(k for _, k in rounds))
    model = recording.counts.acceptance
    assert isinstance(model, PerPosition | Recorded)
    if isinstance(model, PerPosition) and model.survival is not None:
        share = 1.0
        for place, passed in enumerate(model.survival):
            got_there = [k for drafted, k in rounds if drafted > place and k >= place]
            share *= sum(k > place for k in got_there) / len(got_there) if got_there else 0
            assert passed == pytest.approx(share)


@pytest.mark.parametrize("name", [*READ, "vLLM, log"])
@repeatable
@given(sessions=mixed)
def test_no_true_record_is_refused(folder: Path, name: str, sessions: Sessions) -> None:
    recording = (READ | {"vLLM, log": vllm_log})[name](folder, sessions)
    rounds = [pair for session in sessions for pair in session]
    assert recording.counts.accepted == sum(k for _, k in rounds)
    stated = recording.counts.stated
    if stated is not None and name != "vLLM, log":  # whose lines do not tell how many rounds accepted nothing
        assert stated == pytest.approx(1 + recording.counts.accepted / len(rounds), abs=1e-4)


@pytest.mark.parametrize("name", ["vLLM, summary", "AIPerf", "SGLang", "vLLM, a scrape"])
def test_short_drafts_of_unknown_length_leave_a_note(folder: Path, name: str) -> None:
    recording = READ[name](folder, [[(4, 4), (4, 1), (2, 1), (4, 0)]])
    assert recording.counts.depth == DEPTH
    assert len(recording.counts.notes) == 1
    assert READ[name](folder, [[(4, 4), (4, 1)]]).counts.notes == ()


# As printed by their engines; vLLM's response is the example of `import_record`.


def test_the_documented_example_of_sglang(tmp_path: Path) -> None:
    meta = {
        "spec_accept_rate": 0.2930, "spec_accept_length": 2.4651, "spec_num_correct_drafts": 63,
        "spec_num_proposed_drafts": 215, "spec_verify_ct": 43, "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3],
    }  # fmt: skip
    answers: list[Any] = [
        {"meta_info": {**meta, "completion_tokens": 106, "prompt_tokens": 9}},
        {"choices": [{"meta_info": meta}], "usage": {"completion_tokens": 106, "prompt_tokens": 9}},
    ]
    for answer in answers:
        recording = read_sglang([write(tmp_path / "answer.json", json.dumps(answer))])
        assert counted(recording) == (43, 63, 5)
        assert recording.counts.stated == pytest.approx(2.4651)
        assert recording.lengths == ((9, 106),)
    wrong = json.dumps({"meta_info": {**meta, "completion_tokens": 107}})
    with pytest.raises(InputError, match=r"spec_accept_length = 2\.4651 contradicts completion_tokens / .* = 2\.48837"):
        read_sglang([write(tmp_path / "answer.json", wrong)])


@pytest.mark.parametrize("drafted", [150, None])
def test_older_answers_of_sglang_share_a_depth(tmp_path: Path, drafted: int | None) -> None:
    answers = [
        {"spec_verify_ct": 30, "spec_accept_histogram": histogram, "spec_draft_token_num": drafted}
        for histogram in ([10, 10, 10], [5, 5, 5, 5, 5, 5])
    ]
    recording = read_sglang([engines.write_lines(tmp_path / "answers.jsonl", answers)])
    assert counted(recording) == (60, 105, 5)
    assert mean_of(recording) == pytest.approx(2.75)
    note = "2 of 2 requests do not say how many tokens they drafted: all are taken to have drafted 5, "
    assert recording.counts.notes == (() if drafted else (f"{note}the longest draft that is known",))


def test_the_documented_line_of_vllms_log(tmp_path: Path) -> None:
    recording = read_vllm_log([write(tmp_path / "server.log", "INFO something else\n" + LOG)])
    assert (counted(recording), recording.counts.stated) == ((207, 464, 4), 3.24)
    assert mean_of(recording) == pytest.approx(3.241)


@repeatable
@given(sessions=full)
def test_lines_of_a_log_are_weighted_by_their_drafts(folder: Path, sessions: Sessions) -> None:
    recording = vllm_log(folder, sessions)
    together = [k for session in sessions for _, k in session]
    assert counted(recording)[:2] == (len(together), sum(together))
    assert mean_of(recording) == pytest.approx(1 + sum(together) / len(together), abs=DEPTH * 0.0005 + 1e-9)


def test_lengths_are_those_of_the_answers(folder: Path) -> None:
    sessions = [[(4, 2), (4, 0)], [(4, 4)]]
    assert vllm(folder, sessions).lengths == ((20, 5), (20, 6))
    assert aiperf(folder, sessions).lengths == ((20, 5), (20, 6))  # 30 by the client's tokenizer
    assert sglang(folder, sessions).lengths == ((20, 4), (20, 5))
    assert vllm_list(folder, sessions).lengths == ()


# Real records of a server that drafts by prompt lookup, with steps that had no draft and are not counted as rounds.


@pytest.mark.parametrize("name", WITH_PLAIN_STEPS)
def test_steps_without_a_draft_are_rounds_that_accept_nothing(tmp_path: Path, name: str) -> None:
    recording = WITH_PLAIN_STEPS[name](tmp_path, [(4, 4), (4, 1), (4, 0)], 6)
    assert counted(recording) == (9, 5, DEPTH)
    assert mean_of(recording) == pytest.approx(1 + 5 / 9)
    assert any("6 of 9 steps had no draft" in note for note in recording.counts.notes)


@pytest.mark.parametrize("name", WITH_PLAIN_STEPS)
def test_answers_end_within_their_last_round(tmp_path: Path, name: str) -> None:
    assert WITH_PLAIN_STEPS[name](tmp_path, [(4, 4), (4, 1), (4, 0)], -DEPTH).counts.rounds == 3
    with pytest.raises(InputError, match=r"= 4 contradicts first tokens \+ rounds \+ accepted = 1 \+ 3 \+ 5, of which"):
        WITH_PLAIN_STEPS[name](tmp_path, [(4, 4), (4, 1), (4, 0)], -DEPTH - 1)


def test_answers_by_the_clients_tokenizer_leave_a_note(tmp_path: Path) -> None:
    line = engines.aiperf_line([(4, 0)] * 63, DEPTH)
    line["spec_decode_acceptance"]["completion_tokens"] = None
    line["metrics"]["output_sequence_length"]["value"] = 97
    recording = read_aiperf([engines.write_lines(tmp_path / "a.jsonl", [line])])
    assert (recording.counts.rounds, recording.lengths) == (63, ((20, 97),))
    assert "1 answers have no completion_tokens of the server" in recording.notes[0]
    line["metrics"]["usage_completion_tokens"] = {"value": 64}
    recording = read_aiperf([engines.write_lines(tmp_path / "a.jsonl", [line])])
    assert (recording.lengths, recording.notes) == (((20, 64),), ())


def test_answers_without_counts_are_left_out_with_a_note(tmp_path: Path) -> None:
    answers = [{"metrics": {"speculative_decoding": None}}, engines.vllm_answer(engines.vllm_stats([(4, 2)], 4))]
    recording = read_vllm([engines.write_lines(tmp_path / "a.jsonl", answers)])
    assert recording.counts.rounds == 1
    assert "1 entries have no counts" in recording.counts.notes[0]
    with pytest.raises(InputError, match=r"a.jsonl: holds no request with speculative decoding's counts"):
        read_vllm([engines.write_lines(tmp_path / "a.jsonl", answers[:1])])
