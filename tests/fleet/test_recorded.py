"""Traces and files of lengths as they are published: one load in every form, and nothing lost in silence."""

import random
import re
from pathlib import Path

import pytest

from specfleet.experiments.notes import notes_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.recorded import read_recorded
from tests.inputs.damage import DAMAGES
from tests.inputs.tables import csv_mutated

FILES = sorted((Path(__file__).parent / "data" / "recorded").iterdir())
TEXTS = ((6955, 52), (6472, 26), (811, 300), (12, 1))
ARRIVED_S = (0.0, 3.053, 3.053, 60.25)
HEAD = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
MOONCAKE = '{{"timestamp": {}, "input_length": 5, "output_length": 7}}\n'


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_published_form_gives_the_same_load(file: Path) -> None:
    recorded = read_recorded(file, timed=True)
    assert recorded.texts == read_recorded(file, timed=False).texts == TEXTS
    assert recorded.arrived_s == pytest.approx(ARRIVED_S, abs=1e-6)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_editors_change_of_a_file_changes_no_load(file: Path, tmp_path: Path) -> None:
    content, quoted = file.read_bytes(), ",".join(f'"{cell}"' for cell in file.read_text().split("\n", 1)[0].split(","))
    variants = [b"\xef\xbb\xbf" + content, content.replace(b"\n", b"\r\n"), b"\n" + content.replace(b"\n", b"\n \n")]
    if file.suffix == ".csv":
        rest = content.split(b"\n", 1)[1].replace(b",", b", ")
        variants += [content.replace(b",", other) for other in (b";", b"\t")]
        variants += [quoted.encode() + b"\n" + rest, re.sub(rb"([\d.:+-]+ ?[\d.:+]*)(?=,)", rb'"\1"', content)]
    else:
        variants.append(b"[\n" + content.strip().replace(b"\n", b",\n") + b"]\n")
    for variant in variants:
        (tmp_path / file.name).write_bytes(variant)
        for timed in (True, False):
            assert read_recorded(tmp_path / file.name, timed) == read_recorded(file, timed)


@pytest.mark.parametrize(
    ("name", "text", "arrived_s", "note"),
    [
        ("a.csv", HEAD + "0,1,1\n0.5,1,1\n", (0, 0.5), ""),
        ("a.csv", HEAD + "1700000000,1,1\n1700000002.5,1,1\n", (0, 2.5), ""),
        ("a.csv", HEAD + "1700000000000,1,1\n1700000002500,1,1\n", (0, 2.5), "with times in milliseconds"),
        ("a.csv", HEAD + "9,1,1\n3,2,2\n", (0, 6), "rows are sorted by time"),
        ("a.csv", HEAD + "1,5,0\n3,2,2\n4,0,2\n8,2,2\n", (0, 5), "2 of 4 rows have no token of prompt or answer"),
        ("a.jsonl", MOONCAKE.format(500) + MOONCAKE.format(3000), (0, 2.5), "read as Mooncake's, .*in milliseconds"),
        ("a.jsonl", MOONCAKE.format(1700000000) + MOONCAKE.format(1700000002.5), (0, 2.5), "times in seconds"),
        ("a.jsonl", MOONCAKE.format(1700000000000) + MOONCAKE.format(1700000002500), (0, 2.5), "in milliseconds"),
    ],
)
def test_times_begin_at_0_and_what_was_done_is_noted(
    name: str, text: str, arrived_s: tuple[float, ...], note: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    recorded = read_recorded(tmp_path / name, timed=True)
    assert recorded.arrived_s == arrived_s
    assert re.search(note or "^$", recorded.note), recorded.note
    arrivals = {"process": "trace", "file": str(tmp_path / name)}
    notes = notes_of(make_scenario({"workload": {"arrivals": arrivals}}))
    assert [f"{arrivals['file']}: {recorded.note}" in notes] == [bool(note)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", r"has the columns \['a', 'b'\]; needs arrived_at, .*; or timestamp, .*Azure's\); or .*BurstGPT"),
        (HEAD.replace("arrived_at", "num_decode_tokens") + "1,2,3\n", "has the columns"),
        ("", r"has the columns \[\]"),
        (HEAD + "1,2,0\n", "none of its 1 rows has tokens of prompt and answer"),
        (HEAD + "1,2\n", "line 2: has 2 values; its head names 3"),
        (HEAD + "1,2,x\n", "line 2: num_decode_tokens = 'x': needs a number"),
        (HEAD + "1,-2,3\n", "line 2: num_prefill_tokens = '-2': needs a whole number from 0"),
        (HEAD + "1,2.5,3\n", "line 2: num_prefill_tokens = '2.5': needs a whole number"),
        (HEAD + "nan,2,3\n", "line 2: arrived_at = 'nan': needs a number or a date"),
        (HEAD + "2024-13-01,2,3\n", "line 2: arrived_at = '2024-13-01': needs a number or a date"),
        (HEAD + "1,2,3\n2024-12-01,2,3\n", "arrived_at has dates and numbers"),
        (HEAD + "1,2,3\n1700000000,2,3\n", "spans 1.7e.09 s; allowed: up to 1e.09 s"),
        (HEAD + '1,2,"3\n4,5,6\n', "line 3: not CSV"),
        (MOONCAKE.format(1) + "{}\n", "line 2: input_length = None: needs a number"),
        (MOONCAKE.format(1) + "[1]\n", "line 2: .* needs JSON Lines, an object in each line"),
        (MOONCAKE.format("true"), "line 1: timestamp = True: needs a number"),
        (MOONCAKE.format(1) * 2 + "{", "line 3: not JSON"),
        ("[[1]]", "needs JSON Lines"),
        (HEAD, "none of its 0 rows has tokens"),
        ("PAR1\xff", "a Parquet file; save it as CSV or JSON Lines"),
        ("\x1f\x8b\x08", "compressed by gzip; unpack it first"),
    ],
)
def test_a_file_of_another_form_is_one_clear_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=f"^workload.arrivals.file .*{message}"):
        read_recorded(tmp_path / "a", timed=True)


def test_300_damaged_files_are_refused_or_lose_no_request(tmp_path: Path) -> None:
    refused = []
    for number in range(300):
        rng = random.Random(number)
        file = rng.choice(FILES)
        content = rng.choice(DAMAGES)(file.read_bytes(), rng)
        if file.suffix == ".csv" and rng.random() < 0.5:
            content = csv_mutated(file.read_text(), rng)[0].encode("utf-8", "surrogatepass")
        (tmp_path / "damaged").write_bytes(content)
        try:
            recorded = read_recorded(tmp_path / "damaged", timed=True)
        except InputError as error:
            refused.append(str(error))
            continue
        text = content.decode("utf-8-sig").strip()
        lines = text.split("\n") if text.startswith("{") else text.splitlines()[1:]
        left_out = re.search(r"(\d+) of \d+ rows", recorded.note)
        rows = len(recorded.texts) + (int(left_out[1]) if left_out else 0)
        assert rows == len([line for line in lines if line.strip(" ,\t\r")]), (number, text[:300])
        assert len(recorded.arrived_s) == len(recorded.texts)
        assert sorted(recorded.arrived_s) == list(recorded.arrived_s)
    assert 100 < len(refused) < 250
    assert not [line for line in refused if "\n" in line]


def test_a_trace_with_fewer_rows_than_requests_is_noted() -> None:
    workload = {"requests": 9, "arrivals": {"process": "trace", "file": str(FILES[0])}}
    assert any("has 4, which are all that run" in note for note in notes_of(make_scenario({"workload": workload})))


def test_ids_in_a_csv_file_are_named_as_unread(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('arrived_at,num_prefill_tokens,num_decode_tokens,hash_ids\n0,30,5,"[1, 2]"\n')
    recorded = read_recorded(file, timed=True, id_tokens=16)
    assert recorded.ids == ()
    assert recorded.note == "hash_ids of a CSV file are not read; JSON Lines have them"
