"""Readers of other engines' records: what they read is what was recorded, and what contradicts itself is refused."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.readers.aiperf import read_aiperf
from calibrate.readers.inference_lab import read_inference_lab
from calibrate.readers.recording import Recording
from calibrate.readers.sglang import read_sglang
from calibrate.readers.vllm import read_vllm
from calibrate.readers.vllm_log import read_vllm_log
from calibrate.readers.vllm_metrics import read_vllm_metrics
from fleet.chance.acceptance import LengthModel, PerPosition, Recorded, expected_committed
from fleet.errors import InputError
from tests.helpers import engines
from tests.helpers.places import repeatable

DEPTH = 4
Sessions = list[list[tuple[int, int]]]


def round_of(least: int) -> st.SearchStrategy[tuple[int, int]]:
    """Rounds that drafted `least` to DEPTH tokens."""
    drafted = st.integers(least, DEPTH)
    return drafted.flatmap(lambda tokens: st.tuples(st.just(tokens), st.integers(0, tokens)))


def sessions_of(least: int) -> st.SearchStrategy[Sessions]:
    return st.lists(st.lists(round_of(least), min_size=1, max_size=20), min_size=1, max_size=4)


full, mixed = sessions_of(DEPTH), sessions_of(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def vllm(folder: Path, sessions: Sessions, detail: str = "summary") -> Recording:
    answers = [engines.vllm_answer(engines.vllm_stats(session, DEPTH, detail)) for session in sessions]
    return read_vllm([engines.write_lines(folder / "answers.jsonl", answers)])


def vllm_list(folder: Path, sessions: Sessions) -> Recording:
    stats = [engines.vllm_stats(session, DEPTH, digits=17) for session in sessions]
    return read_vllm([write(folder / "answers.json", json.dumps(stats, indent=1))])


def aiperf(folder: Path, sessions: Sessions) -> Recording:
    lines = [engines.aiperf_line(session, DEPTH) for session in sessions]
    return read_aiperf([engines.write_lines(folder / "profile_export.jsonl", lines)])


def sglang(folder: Path, sessions: Sessions) -> Recording:
    answers = [engines.sglang_answer(session, DEPTH, older=len(session) % 2 == 0) for session in sessions]
    return read_sglang([engines.write_lines(folder / "answers.jsonl", answers)])


def scrape(folder: Path, sessions: Sessions) -> Recording:
    return read_vllm_metrics([write(folder / "metrics.txt", engines.prometheus(dict(enumerate(sessions)), DEPTH))])


def two_scrapes(folder: Path, sessions: Sessions) -> Recording:
    """The first request came before the first scrape, and again with the others."""
    before = write(folder / "before.txt", engines.prometheus({0: sessions[0]}, DEPTH))
    together = [pair for session in sessions for pair in session]
    after = write(folder / "after.txt", engines.prometheus({0: [*sessions[0], *together]}, DEPTH))
    return read_vllm_metrics([before, after])


def inference_lab(folder: Path, sessions: Sessions) -> Recording:
    files = [
        write(folder / f"rounds{number}.csv", engines.inference_lab(session, DEPTH, oracle=number % 2 == 0))
        for number, session in enumerate(sessions)
    ]
    return read_inference_lab(files)


def vllm_log(folder: Path, sessions: Sessions) -> Recording:
    return read_vllm_log([write(folder / "log", "".join(engines.vllm_log(session, DEPTH) for session in sessions))])


READ: dict[str, Callable[[Path, Sessions], Recording]] = {
    "vLLM, summary": vllm,
    "vLLM, a list": vllm_list,
    "vLLM, by draft length": lambda folder, sessions: vllm(folder, sessions, "by-length"),
    "vLLM, detailed": lambda folder, sessions: vllm(folder, sessions, "detailed"),
    "vLLM, a scrape": scrape,
    "vLLM, two scrapes": two_scrapes,
    "AIPerf": aiperf,
    "SGLang": sglang,
    "inference-lab": inference_lab,
}
TELL_DRAFTS = ("vLLM, by draft length", "vLLM, detailed", "inference-lab")


def mean_of(recording: Recording) -> float:
    model = recording.acceptance
    assert isinstance(model, LengthModel)
    return expected_committed(model, recording.depth)


@pytest.mark.parametrize("name", READ)
@repeatable
@given(sessions=full)
def test_full_drafts_come_back_as_they_were_recorded(folder: Path, name: str, sessions: Sessions) -> None:
    recording = READ[name](folder, sessions)
    together = [accepted for session in sessions for _, accepted in session]
    assert (recording.rounds, recording.accepted, recording.depth) == (len(together), sum(together), DEPTH)
    assert mean_of(recording) == pytest.approx(1 + sum(together) / len(together), rel=1e-12)
    assert recording.told is None or recording.told == pytest.approx(1 + sum(together) / len(together), abs=1e-4)
    if isinstance(recording.acceptance, PerPosition):
        assert recording.acceptance.histogram == tuple(engines.histogram_of([(0, k) for k in together], DEPTH))


@repeatable
@given(sessions=full)
def test_steps_in_order_are_played_back_in_order(folder: Path, sessions: Sessions) -> None:
    recording = vllm(folder, sessions, "detailed")
    assert recording.acceptance == Recorded(DEPTH, tuple(tuple(k for _, k in session) for session in sessions))


@pytest.mark.parametrize("name", TELL_DRAFTS)
@repeatable
@given(sessions=mixed)
def test_drafts_of_several_lengths_give_the_rates_of_those_that_got_there(
    folder: Path, name: str, sessions: Sessions
) -> None:
    recording = READ[name](folder, sessions)
    rounds = [pair for session in sessions for pair in session]
    assert (recording.rounds, recording.accepted) == (len(rounds), sum(k for _, k in rounds))
    model = recording.acceptance
    assert isinstance(model, PerPosition | Recorded)
    if isinstance(model, PerPosition) and model.rates is not None:
        for place, rate in enumerate(model.rates):
            got_there = [k for drafted, k in rounds if drafted > place and k >= place]
            assert rate == (pytest.approx(sum(k > place for k in got_there) / len(got_there)) if got_there else 0)


@pytest.mark.parametrize("name", [*READ, "vLLM, log"])
@repeatable
@given(sessions=mixed)
def test_no_true_record_is_refused(folder: Path, name: str, sessions: Sessions) -> None:
    recording = (READ | {"vLLM, log": vllm_log})[name](folder, sessions)
    rounds = [pair for session in sessions for pair in session]
    assert recording.accepted == sum(k for _, k in rounds)
    if recording.told is not None and name != "vLLM, log":  # whose lines do not tell how many rounds accepted nothing
        assert recording.told == pytest.approx(1 + recording.accepted / len(rounds), abs=1e-4)


@pytest.mark.parametrize("name", ["vLLM, summary", "AIPerf", "SGLang", "vLLM, a scrape"])
def test_short_drafts_that_do_not_say_which_they_were_leave_a_note(folder: Path, name: str) -> None:
    recording = READ[name](folder, [[(4, 4), (4, 1), (2, 1), (4, 0)]])
    assert recording.depth == DEPTH
    assert len(recording.notes) == 1
    assert READ[name](folder, [[(4, 4), (4, 1)]]).notes == ()


# As printed by their engines.


def test_the_documented_example_of_vllm(tmp_path: Path) -> None:
    stats = {
        "mean_acceptance_length": 1.2326, "draft_acceptance_rate": 0.0775, "acceptance_histogram": [39, 1, 0, 3],
        "num_spec_steps": 43, "num_accepted_draft_tokens": 10, "num_draft_tokens": 129, "num_spec_tokens": 3,
    }  # fmt: skip
    for name, content in (("bare", stats), ("answer", {"metrics": {"speculative_decoding": stats}})):
        recording = read_vllm([write(tmp_path / name, json.dumps(content, indent=2))])
        assert (recording.rounds, recording.accepted, recording.depth, recording.told) == (43, 10, 3, 1.2326)
        assert recording.lengths == ()
    text = "\n".join(
        [
            'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 43',
            'vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 129',
            'vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 10',
            *(
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="{n}"}} {k}'
                for n, k in enumerate((4, 3, 3))
            ),
        ]
    )
    scraped = read_vllm_metrics([write(tmp_path / "metrics", text)])
    assert scraped.acceptance == PerPosition(histogram=(39, 1, 0, 3))
    assert scraped.told == pytest.approx(1.2326, abs=5e-5)


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
        assert (recording.rounds, recording.accepted, recording.depth) == (43, 63, 5)
        assert recording.told == pytest.approx(2.4651)
        assert recording.lengths == ((9, 106),)
    wrong = json.dumps({"meta_info": {**meta, "completion_tokens": 107}})
    with pytest.raises(InputError, match=r"spec_accept_length = 2\.4651 contradicts completion_tokens / .* = 2\.48837"):
        read_sglang([write(tmp_path / "answer.json", wrong)])


LOG = (
    "INFO SpecDecoding metrics: Mean acceptance length: 3.24, Accepted throughput: 46.40 tokens/s, Drafted throughput: "
    "82.80 tokens/s, Accepted: 464 tokens, Drafted: 828 tokens, Per-position acceptance rate: 0.763, 0.623, 0.459, "
    "0.396, Avg Draft acceptance rate: 56.0%\n"
)


def test_the_documented_line_of_vllms_log(tmp_path: Path) -> None:
    recording = read_vllm_log([write(tmp_path / "server.log", "INFO something else\n" + LOG)])
    assert (recording.rounds, recording.accepted, recording.depth, recording.told) == (207, 464, 4, 3.24)
    assert mean_of(recording) == pytest.approx(3.241)


@repeatable
@given(sessions=full)
def test_lines_of_a_log_are_weighted_by_their_drafts(folder: Path, sessions: Sessions) -> None:
    recording = vllm_log(folder, sessions)
    together = [k for session in sessions for _, k in session]
    assert (recording.rounds, recording.accepted) == (len(together), sum(together))
    assert mean_of(recording) == pytest.approx(1 + sum(together) / len(together), abs=DEPTH * 0.0005 + 1e-9)


def test_aiperfs_pooled_histogram_is_read_too(tmp_path: Path) -> None:
    pooled = {"0": 34, "1": 22, "3": 16}
    content = {
        "pooled_spec_decode_acceptance_histogram": pooled,
        "total_spec_decode_steps": {"unit": "count", "avg": 72},
    }
    recording = read_aiperf([write(tmp_path / "profile_export_aiperf.json", json.dumps(content, indent=1))])
    assert (recording.rounds, recording.accepted, recording.depth) == (72, 70, 3)
    for told in (73, {"avg": 71.0}):
        file = write(tmp_path / "wrong.json", json.dumps(content | {"total_spec_decode_steps": told}, indent=1))
        with pytest.raises(InputError, match=r"wrong.json: total_spec_decode_steps = 7[13] contradicts .* = 72"):
            read_aiperf([file])


def test_lengths_are_those_of_the_answers(folder: Path) -> None:
    sessions = [[(4, 2), (4, 0)], [(4, 4)]]
    assert vllm(folder, sessions).lengths == ((20, 5), (20, 6))
    assert aiperf(folder, sessions).lengths == ((20, 30), (20, 30))
    assert sglang(folder, sessions).lengths == ((20, 4), (20, 5))
    assert vllm_list(folder, sessions).lengths == ()


def test_answers_without_counts_are_left_out_with_a_note(tmp_path: Path) -> None:
    answers = [{"metrics": {"speculative_decoding": None}}, engines.vllm_answer(engines.vllm_stats([(4, 2)], 4))]
    recording = read_vllm([engines.write_lines(tmp_path / "a.jsonl", answers)])
    assert recording.rounds == 1
    assert "1 entries tell no counts" in recording.notes[0]
    with pytest.raises(InputError, match=r"a.jsonl: holds no request with speculative decoding's counts"):
        read_vllm([engines.write_lines(tmp_path / "a.jsonl", answers[:1])])


# Contradictions.


def numbers_in(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every number of plain content."""
    if isinstance(content, bool) or content is None or isinstance(content, str):
        return
    if isinstance(content, int | float):
        yield path
        return
    for key, item in content.items() if isinstance(content, dict) else enumerate(content):
        yield from numbers_in(item, (*path, key))


def changed(content: Any, path: tuple[Any, ...], by: float) -> Any:
    """The content with one number changed."""
    copy = json.loads(json.dumps(content))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] += by
    return copy


SESSION = [(4, 4), (4, 1), (4, 0), (4, 1), (4, 3)]
STATS = engines.vllm_stats(SESSION, DEPTH, "detailed") | engines.vllm_stats(SESSION, DEPTH, "by-length")
RECORDS: dict[str, tuple[Any, Callable[[list[Path]], Recording]]] = {
    "vLLM": (STATS, read_vllm),
    "AIPerf": (engines.aiperf_line(SESSION, DEPTH)["spec_decode_acceptance"], read_aiperf),
    "SGLang": (engines.sglang_answer(SESSION, DEPTH)["meta_info"], read_sglang),
}
FREE = {"prompt_tokens"}  # which nothing else tells
AT_MOST = {"num_spec_tokens", "num_draft_tokens", "spec_num_proposed_drafts"}  # a bound, where no rate is told


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("name", RECORDS)
def test_any_number_that_is_changed_contradicts_another(tmp_path: Path, name: str, by: int) -> None:
    content, read = RECORDS[name]
    file = tmp_path / "record.json"
    read([write(file, json.dumps(content, indent=1))])
    tried = 0
    for path in numbers_in(content):
        if path[0] in FREE or (name == "AIPerf" and path[0] == "num_spec_tokens" and by > 0):
            continue
        write(file, json.dumps(changed(content, path, by), indent=1))
        with pytest.raises(InputError) as refusal:
            read([file])
        assert re.match(rf"{re.escape(str(file))}: .*\b\d", str(refusal.value)), path
        assert "\n" not in str(refusal.value)
        tried += 1
    assert tried > 7


@pytest.mark.parametrize("by", [1, -1])
def test_any_counter_that_is_changed_contradicts_another(tmp_path: Path, by: int) -> None:
    text = engines.prometheus({0: SESSION}, DEPTH)
    lines = text.splitlines()
    tried = 0
    for number, line in enumerate(lines):
        head, _, value = line.rpartition(" ")
        if not line.startswith("vllm:spec") or "_created" in line or (by > 0 and "num_drafts_total" in line):
            continue  # further drafts may have accepted nothing
        if by < 0 and "num_draft_tokens" in line:
            continue  # drafts may have been short
        changed_text = "\n".join([*lines[:number], f"{head} {float(value) + by}", *lines[number + 1 :]])
        with pytest.raises(InputError, match=r"metrics.txt: vllm:spec_decode_num_\w+"):
            read_vllm_metrics([write(tmp_path / "metrics.txt", changed_text)])
        tried += 1
    assert tried >= 6


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("3.24", "3.26", "Mean acceptance length = 3.26 contradicts 1 + its rates' sum = 3.241"),
        ("0.459", "0.659", "Per-position acceptance rate 2 = 0.659 exceeds Per-position acceptance rate 1 = 0.623"),
        ("464 tokens", "465 tokens", "Avg Draft acceptance rate = 56.0% contradicts Accepted / Drafted = 56.16%"),
        ("56.0%", "57.0%", "Avg Draft acceptance rate = 57.0% contradicts"),
        ("0.396, Avg", "0.396, 0.1, Avg", "Mean acceptance length = 3.24 contradicts"),
        ("Accepted: 464 tokens, ", "", "lacks `Accepted: NUMBER`"),
    ],
)
def test_a_line_of_a_log_that_contradicts_itself_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in LOG
    with pytest.raises(InputError, match=rf"server.log, line 2: .*{re.escape(says)}"):
        read_vllm_log([write(tmp_path / "server.log", "\n" + LOG.replace(old, new))])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["2,m,1,0"], "line 2: commits = 2 contradicts the ones that a0, a1, ... begin with = 1"),
        (["1,m,0,0", "0,m,1,0"], "line 2: commits = 1 contradicts"),
        (["2,m,0.5,"], "line 2: commits = 2 exceeds the tokens that have a signal = 1"),
        (["1,m,1.5,0.5"], "line 2: a0 = '1.5'; allowed: 0 to 1"),
        (["x,m,0.5,0.5"], "line 2: commits = 'x'; allowed: whole numbers"),
        (["0,m,,"], "counts no round that drafted a token"),
        (["1,m,1"], "line 2: has 3 values; its head names 4"),
    ],
)
def test_a_trace_of_inference_lab_that_contradicts_itself_is_refused(
    tmp_path: Path, rows: list[str], says: str
) -> None:
    file = write(tmp_path / "rounds.csv", "\n".join(["commits,category,a0,a1", *rows]) + "\n")
    with pytest.raises(InputError, match=rf"rounds.csv.* {re.escape(says)}|rounds.csv, {re.escape(says)}"):
        read_inference_lab([file])


def test_a_trace_without_signals_is_refused_by_its_columns(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs the columns commits, a0, a1, ...; has \['category', 'commits'\]"):
        read_inference_lab([write(tmp_path / "rounds.csv", "commits,category\n1,m\n")])


def test_counters_that_fall_between_scrapes_are_a_restart(tmp_path: Path) -> None:
    more = write(tmp_path / "one.txt", engines.prometheus({0: SESSION * 2}, DEPTH))
    less = write(tmp_path / "two.txt", engines.prometheus({0: SESSION}, DEPTH))
    with pytest.raises(InputError, match=r"two.txt: vllm:spec_decode_num_drafts = 5 is below .*, 10: a restart"):
        read_vllm_metrics([more, less])
    with pytest.raises(InputError, match="counts no round that drafted"):
        read_vllm_metrics([less, less])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 5', "stands there twice"),
        ('vllm:spec_decode_num_drafts_total{engine="1",model_name="other"} 5', "counts the models m, other"),
        ('vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} many', "drafts = 'many'; needs a number"),
        ('vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 0.5', "allowed: whole numbers from 0"),
        ("vllm:spec_decode_num_drafts_total", "is no sample of Prometheus text"),
        (
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="-1"} 0',
            'position="-1"; allowed: 0 to 4095',
        ),
        (
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="7"} 0',
            "lacks vllm:spec_decode_num_accepted_tokens_per_pos_total of each position",
        ),
    ],
)
def test_a_scrape_that_cannot_be_is_refused(tmp_path: Path, line: str, says: str) -> None:
    text = engines.prometheus({0: SESSION}, DEPTH) + line + "\n"
    with pytest.raises(InputError, match=re.escape(says)):
        read_vllm_metrics([write(tmp_path / "metrics.txt", text)])
