"""Records of other engines that contradict themselves are refused: in one line, which names the place."""

import json
import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.responses import read_aiperf, read_sglang, read_vllm
from specfleet.calibration.readers.vllm_log import read_vllm_log
from specfleet.calibration.readers.vllm_metrics import read_vllm_metrics
from specfleet.fleet.errors import InputError
from tests.helpers import engines
from tests.helpers.readings import DEPTH, LOG, write
from tests.inputs.values import places


def changed(content: Any, path: tuple[Any, ...], by: float) -> Any:
    """The content with one number changed."""
    copy = json.loads(json.dumps(content))
    inside(copy, path[:-1])[path[-1]] += by
    return copy


def inside(content: Any, path: tuple[Any, ...]) -> Any:
    return reduce(lambda place, key: place[key], path, content)


SESSION = [(4, 4), (4, 1), (4, 0), (4, 1), (4, 3)]
STATS = engines.vllm_stats(SESSION, DEPTH, "detailed") | engines.vllm_stats(SESSION, DEPTH, "by-length")
RECORDS: dict[str, tuple[Any, Callable[[list[Path]], Recording]]] = {
    "vLLM": (STATS, read_vllm),
    "AIPerf": (engines.aiperf_line(SESSION, DEPTH)["spec_decode_acceptance"], read_aiperf),
    "SGLang": (engines.sglang_answer(SESSION, DEPTH)["meta_info"], read_sglang),
}
FREE = {"prompt_tokens", "completion_tokens"}  # steps without a draft, and ends of answers, change the latter


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize("name", RECORDS)
def test_any_number_that_is_changed_contradicts_another(tmp_path: Path, name: str, by: int) -> None:
    content, read = RECORDS[name]
    file = tmp_path / "record.json"
    read([write(file, json.dumps(content, indent=1))])
    tried = 0
    for path in places(content):
        is_number = isinstance(inside(content, path), int | float)
        if not is_number or path[0] in FREE or (name == "AIPerf" and path[0] == "num_spec_tokens" and by > 0):
            continue
        write(file, json.dumps(changed(content, path, by), indent=1))
        with pytest.raises(InputError) as refusal:
            read([file])
        assert re.match(rf"{re.escape(str(file))}: .*\b\d", str(refusal.value)), path
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


def test_counters_that_fall_between_scrapes_are_a_restart(tmp_path: Path) -> None:
    more = write(tmp_path / "one.txt", engines.prometheus({0: SESSION * 2}, DEPTH))
    less = write(tmp_path / "two.txt", engines.prometheus({0: SESSION}, DEPTH))
    hidden = write(tmp_path / "three.txt", engines.prometheus({0: SESSION, 1: SESSION * 9}, DEPTH))
    grown = write(tmp_path / "four.txt", engines.prometheus({0: SESSION * 9}, DEPTH).replace("1.7637e", "1.7638e"))
    for after, says in (
        (less, "drafts_total = 5 is below the scrape before it, 10"),
        (hidden, "drafts_total = 5 is below the scrape before it, 10"),
        (grown, r"drafts_created = 1763800000 differs from the scrape before it, 1763700000"),
    ):
        with pytest.raises(InputError, match=rf"{after}, line \d: vllm:spec_decode_num_{says}: a restart"):
            read_vllm_metrics([more, after])
    with pytest.raises(InputError, match="counts no round that drafted"):
        read_vllm_metrics([less, less])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 5', "stands there twice"),
        ('vllm:spec_decode_num_drafts_total{engine="1",model_name="other"} 5', "counts the models m, other"),
        ('vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} many', "many' is no sample of Prometheus text"),
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
