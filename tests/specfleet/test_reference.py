"""What is said of keys is complete and true of the code: pages, look-ups, lists and templates."""

import re
import tomllib
from pathlib import Path

import pytest

from specfleet.fleet.acceptance.signals import SignalRow
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.device import Accelerator
from specfleet.fleet.hardware.shipped import device_of
from specfleet.fleet.inputs.nearest import ENGINES_WORDS
from specfleet.fleet.records.metrics.glossary import METRICS
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import RunHeader
from specfleet.fleet.records.schema import Row
from specfleet.fleet.scenario.reading import make_scenario, read_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.writing import fields_of
from specfleet.fleet.stations.star import StarInputs
from specfleet.meaning.entries import FILE, explain
from specfleet.meaning.render import in_lines, template, write_template
from specfleet.meaning.shipped import profiles, scenarios
from specfleet.sim.analytic import StarPrediction
from tests.helpers.cli import Say, all_commands
from tools.reference.__main__ import main, pages
from tools.reference.entries import SYMBOLS, described_keys, keys_of, prose_of, tables_from
from tools.reference.texts import PAGES

PAGES_FOLDER = Path(__file__).parents[2] / "docs" / "reference"
TABLES = {table.title: table for table in (*tables_from(Scenario), *tables_from(StarPrediction))}
STRUCTS = [*(table.struct for table in TABLES.values()), Row, RunHeader, SignalRow, StarInputs, Metric, Accelerator]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_key_has_a_description_and_numbers_have_units(struct: type) -> None:
    assert prose_of(struct)[0]
    assert set(described_keys(struct)) == {field.name for field in fields_of(struct)}
    for key in keys_of(struct):
        assert key.what.endswith(".")
        assert "unit" in key.facts or not any(kind in key.facts["type"] for kind in ("integer", "number")), key.name


def test_the_pages_are_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main() == 0
    folders = tmp_path / "docs" / "reference", PAGES_FOLDER
    written, stored = ({path.name: path.read_text() for path in folder.glob("*.md")} for folder in folders)
    assert written == stored, "run python -m tools.reference"
    entries = (tmp_path / "specfleet" / "meaning" / FILE.name).read_text()
    assert entries == FILE.read_text(), "run python -m tools.reference"


def test_every_link_of_the_pages_leads_to_a_heading() -> None:
    made = pages()
    assert set(made) == {"README.md", *PAGES}
    anchors = {
        name: {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        }
        for name, text in made.items()
    }
    for name, text in made.items():
        for page, _, anchor in (link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", text)):
            assert (page or name) in made
            assert not anchor or anchor in anchors[page or name], f"{name}: {page}#{anchor}"


def test_every_command_and_metric_is_on_a_page() -> None:
    made = pages()
    for name in all_commands():
        assert f"# `specfleet {name}`\n" in made["cli.md"]
    for one in (*METRICS, *SYMBOLS):
        assert f"| `{one.name}` | {one.unit} |" in made["metrics.md"]


FOUND = {
    **{word: {f"{key}: scenario key"} for word, key in ENGINES_WORDS.items()},
    "depth": {"drafters.depth: scenario key", 'fixed.depth: key of the policy "fixed"'},
    "verifiers.allocate.budget": {'goodspeed.budget: key of the policy "goodspeed"'},
    "drafters.tiers[].first": {"Tier.first: scenario key"},
    "verifiers.tiers.0.profile": {"Tier.profile: scenario key"},
    "devices.NAME.sharing": {"devices.NAME.sharing: scenario key"},
    "profile.draft.base_s": {"StepTime.base_s: profile key"},
    "verifiers.verify.base_s": {"StepTime.base_s: profile key"},
    "ttft_p90_s": {"ttft_s: metric"},
    "wait_s": {"wait_s: metric", "wait_s: quantity of the analytic model"},
    "R_q": {"rounds_per_s: metric"},
    "S": {"service_s: metric", "S_s: quantity of the analytic model"},
    "N": {"verifiers.count: scenario key"},
    "beta": {'geometric.beta: key of the model "geometric"', 'goodspeed.beta: key of the policy "goodspeed"'},
    "StepTime": {"StepTime: table"},
    "started_unix_s": {"header.started_unix_s: field of the run header"},
    "entropy": {"entropy: column of a signal file"},
    **{word: {f"{word}: word"} for word in ("schedule", "level", "in flight", "PARD", "hash_ids", "saturated")},
    **{word: {f"{word}: word"} for word in ("knee", "standing", "seeds", "bonus token")},
    "In_flight": {"in flight: word"},
    "dflash": {"DFlash: word"},
    "pard": {"PARD: word"},
    "late drafts": {"late draft: word"},
    "needs": {"rough: an interval needs 2.5 times as many requests: word"},
    **{line: {f"{line}: line of a plan"} for line in ("runs", "turns", "carries", "rounds")},
    "skip": {"verifiers.late: scenario key"},
    "decode": {"verifiers.late: scenario key", "profile.decode: profile key"},
}


def titles_of(word: str) -> set[str]:
    entries = explain(word)
    assert all(entry.what for entry in entries)
    return {in_lines(entry).splitlines()[0] for entry in entries}


@pytest.mark.parametrize("word", FOUND)
def test_a_word_is_explained(word: str) -> None:
    assert titles_of(word) >= FOUND[word]


def test_every_metric_symbol_and_column_is_explained() -> None:
    of_glossary = {"metric": METRICS, "symbol": SYMBOLS}
    named = {kind: [one.name for one in entries] for kind, entries in of_glossary.items()}
    for kind, names in (named | {"column of the record table": list(Row._fields)}).items():
        assert [name for name in names if f"{name}: {kind}" not in titles_of(name)] == []


@pytest.mark.parametrize("title", [title for title, table in TABLES.items() if table.tag_field])
def test_every_policy_and_model_is_explained_with_its_keys(title: str) -> None:
    shown = "\n".join(in_lines(entry) for entry in explain(title))
    assert all(key.name in shown for key in TABLES[title].keys)


@pytest.mark.parametrize(
    ("word", "near"),
    [("depht", "depth"), ("drafters.dept", "drafters.depth"), ("R_qq", "R_q"), ("waits", "wait_s"), ("n", "N")],
)
def test_an_unknown_word_gives_the_nearest_ones(word: str, near: str) -> None:
    with pytest.raises(InputError, match=f"unknown; nearest: .*{near}"):
        explain(word)


def test_an_unknown_word_is_bad_input(say: Say) -> None:
    assert say("explain", "qqqqqqqq") == (2, "", "specfleet: explain qqqqqqqq: unknown; nothing is near it\n")


def test_what_ships_is_listed_with_a_line_each(say: Say) -> None:
    assert [name for name, *_ in profiles()] == list(shipped_files("profiles"))
    basis = {name: basis for name, basis, _ in profiles()}
    assert basis["rtx-4090"] == "stated"
    assert basis["jetson-orin"] == "assumed"
    assert "star" in shipped_files("scenarios")
    for command, listed in (("profiles", profiles()), ("scenarios", scenarios())):
        lines = say(command).out.splitlines()
        shown = [(line.split()[0], line.split("  ")[-1].strip()) for line in lines]
        assert shown == [(one[0], one[-1]) for one in listed]


@pytest.mark.parametrize("kind", shipped_files("scenarios"))
def test_a_template_says_what_the_scenario_of_its_kind_is(kind: str) -> None:
    shipped, text = read_scenario(shipped_files("scenarios")[kind]), template(kind)
    assert make_scenario(tomllib.loads(text)) == shipped
    assert max(map(len, text.splitlines())) <= 120
    # A line that begins with # alone is a default: setting all of them changes nothing.
    everything = re.sub(r"^#(?=\w)", "", text, flags=re.MULTILINE)
    assert everything.count("\n#") < text.count("\n#")
    assert make_scenario(tomllib.loads(everything)) == shipped
    for key in keys_of(type(shipped)):
        assert re.search(rf"^(# {key.name}\b|\[+{key.name}\])", text, re.MULTILINE), key.name
    said = " ".join(re.sub(r"\n# +", " ", text).split())
    for key in keys_of(type(shipped.drafters)):
        assert key.what in said, key.name


def test_a_template_never_takes_the_place_of_a_file(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert say("init", "tree").status == say("init", "h100", "-o", "device.toml").status == 0
    assert device_of("device.toml") == device_of("h100")
    assert read_scenario(tmp_path / "tree.toml") == read_scenario(shipped_files("scenarios")["tree"])
    mine = tmp_path / "mine.toml"
    mine.write_text("# mine")
    refused = "specfleet: init star: mine.toml exists already; name another file with -o\n"
    assert say("init", "star", "-o", "mine.toml") == (2, "", refused)
    assert mine.read_text() == "# mine"
    with pytest.raises(InputError, match=r"allowed: .*goodspeed.*star"):
        write_template("stars", tmp_path / "other.toml")
    with pytest.raises(InputError, match="cannot be written"):
        write_template("star", tmp_path / "mine.toml" / "star.toml")
    assert {path.name for path in tmp_path.iterdir()} == {"tree.toml", "mine.toml", "device.toml"}
