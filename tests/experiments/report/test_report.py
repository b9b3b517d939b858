"""One page of results: whole, small, the same each time, with every label, and nothing in it that asks for more."""

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from matplotlib.figure import Figure

import specfleet
from specfleet.experiments.report.page import LABELS, MAX_ROWS, Grid, ReportPage, html_of
from specfleet.experiments.report.tables import clipped, scenario_grids
from specfleet.figures.style import new_figure
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.times.profile import HardwareProfile
from tests.helpers.stars import star

MAX_BYTES = 1_000_000
VOID = {"meta", "link", "br", "hr", "img", "input"}
KINDS = ("run", "sweep", "plan")


class Parsed(HTMLParser):
    """A page taken apart: whether its tags fit together, their attributes, and the cells of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.misfits: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.misfits.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("results")
    small = {"workload.requests": 24, "workload.new_tokens": 32}
    specfleet.simulate("star", small).save(folder / "run.parquet")
    vary = {"verifiers.count": [1, 2, 4], "drafters.depth": [2, 5]}
    specfleet.sweep("star", vary, small, out=folder / "sweep", seeds=2, jobs=1)
    short, searched = {"workload.new_tokens": 32}, ["verifiers.count=1:3", "drafters.depth=4"]
    found = specfleet.plan("star", short, vary=searched, jobs=1)
    write_file(folder / "plan" / "plan.json", msgspec.json.encode(found))
    return {"run": folder / "run.parquet", **{kind: folder / kind for kind in KINDS[1:]}}


@pytest.fixture(scope="module")
def pages(results: dict[str, Path]) -> dict[str, str]:
    return {kind: specfleet.report(path) for kind, path in results.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_whole_small_and_the_same_each_time(
    kind: str, results: dict[str, Path], pages: dict[str, str], tmp_path: Path
) -> None:
    parsed = Parsed(pages[kind])
    assert (parsed.open, parsed.misfits) == ([], [])
    assert parsed.count("svg") >= 2, "a drawing for a wide window, and one for a phone"
    assert parsed.count("table") >= 2
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    specfleet.report(results[kind], tmp_path / "again.html")
    content = (tmp_path / "again.html").read_bytes()
    assert content == pages[kind].encode()
    assert len(content) < MAX_BYTES


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_in_a_page_asks_for_more(kind: str, pages: dict[str, str]) -> None:
    parsed = Parsed(pages[kind])
    for _, attrs in parsed.tags:
        for name in ("src", "href", "xlink:href", "action", "srcset", "poster", "data"):
            assert (attrs.get(name) or "data:").startswith(("data:", "#"))
    (policy,) = [attrs["content"] for _, attrs in parsed.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    loading = r"https?://|@import|url\((?!#)|fetch\(|XMLHttpRequest|WebSocket|importScripts|sendBeacon"
    assert not re.search(loading, pages[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_comes_first_and_numbers_have_labels(kind: str, pages: dict[str, str]) -> None:
    text = pages[kind]
    assert text.index('class="answer"') < text.index("<svg") < text.index("<table")
    chips = set(re.findall(r'<td><span class="chip (\w+)">', text))
    assert chips <= set(LABELS)
    assert "simulated" in chips or "<p>Simulated.</p>" in text
    assert "measured" not in chips
    assert chips & {"stated", "assumed", "fitted"}, "the numbers of the profile are labelled, too"
    assert "The resolved scenario" in text


def test_simulated_pages_leave_out_what_the_engine_alone_reads(pages: dict[str, str]) -> None:
    scenario = star()
    shown = {key for page in pages.values() for key in re.findall(r"<td>(\w+)</td><td", page)}
    assert {"seed", "kind"} <= shown
    assert shown.isdisjoint({"precision", "model"})
    of_engine = scenario_grids(resolve(scenario), scenario, "", "engine")[0].rows
    assert {"precision", "model"} <= {row[1] for row in of_engine}


def test_rounding_of_times_is_no_number() -> None:
    assert [clipped(value, "s") for value in (5.684e-14, -1e-13, 1e-9)] == [0.0, 0.0, 1e-9]


def test_columns_without_a_value_are_left_out() -> None:
    grid = Grid("T", ("a", "b", "c, ms"), [("x", None, 1.0), ("y", "", float("nan"))])
    page = html_of(ReportPage("t", "k", (), "s", (), (grid,), ("Run it.",), (("start", "echo '<a>'"),)))
    assert re.findall(r'<th scope="col"( class="n")?><button type="button">([^<]*)<', page) == [
        ("", "a"), (' class="n"', "c, ms")
    ]  # fmt: skip
    assert '<pre>echo &#x27;&lt;a&gt;&#x27;</pre><button type="button">Copy</button>' in page


def test_drawings_of_a_page_share_no_id_and_no_clip() -> None:
    def drawn() -> Figure:
        figure = new_figure(6, 3)
        figure.subplots().plot([1, 2], [1, 2])
        return figure

    page = html_of(ReportPage("t", "k", (), "s", ((drawn(), "one"), (drawn(), "two")), ()))
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 100
    assert set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", page)) <= set(ids)


def test_a_page_leaves_the_figures_that_it_is_given() -> None:
    figure = new_figure(6, 3)
    figure.subplots().plot([1, 2], [1, 2], label="line")
    figure.legend()
    html_of(ReportPage("t", "k", (), "s", ((figure, "a"),), ()))
    assert (figure.get_figwidth(), len(figure.legends)) == (6, 1)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["line"]


def test_a_sweep_shows_every_cell_and_names_the_best(results: dict[str, Path], pages: dict[str, str]) -> None:
    swept = specfleet.sweep(
        "star", {"verifiers.count": [1, 2, 4], "drafters.depth": [2, 5]},
        {"workload.requests": 24, "workload.new_tokens": 32}, out=results["sweep"], seeds=2, jobs=1,
    ).frame()  # fmt: skip
    best = swept.loc[swept.throughput.idxmax()]
    assert f"{best['verifiers.count']} targets, depth {best['drafters.depth']}, " in pages["sweep"]
    assert "<h1>star: throughput by targets N and depth d</h1>" in pages["sweep"]
    for value in swept.throughput:
        assert f'data-v="{value:.10g}"' in pages["sweep"]


def test_a_run_shows_every_metric_with_its_value(results: dict[str, Path], pages: dict[str, str]) -> None:
    for name, metric in specfleet.read_run(results["run"]).metrics.items():
        assert f'<td>{name}</td><td class="n" data-v="{metric.value:.10g}">' in pages["run"]


def test_numbers_of_replayed_stations_say_what_their_times_rest_on(tmp_path: Path) -> None:
    sheet = {"sources": {"draft.base_s": "estimated: a roofline"}}
    run = specfleet.simulate(star(profile=sheet, drafters={"kind": "replayed"}, verifiers={"kind": "replayed"})).run
    header = msgspec.structs.replace(run.header, world="engine", replayed=run.header.fleet.replayed)
    result = specfleet.Result(msgspec.structs.replace(run, header=header))
    result.save(tmp_path / "run.parquet")
    page = specfleet.report(tmp_path / "run.parquet")
    assert "waited for step times that are estimated." in page
    assert re.findall(r'<td><span class="chip (replayed|measured)">', page)[0] == "replayed"
    assert "step times estimated" in result.title()
    assert resolve(star(profile=sheet)).basis_in("engine") == "measured", "models have times of their own"


def test_a_page_has_the_numbers_of_each_profile(tmp_path: Path) -> None:
    own = star(link={"latency_s": 0.1})
    assert isinstance(own.profile, HardwareProfile)
    faster = msgspec.structs.replace(own.profile, name="faster", verify=own.profile.draft)
    verifiers = msgspec.structs.replace(own.verifiers, profile=faster)
    specfleet.simulate(msgspec.structs.replace(own, verifiers=verifiers)).save(tmp_path / "run.parquet")
    page = specfleet.report(tmp_path / "run.parquet")
    assert re.findall("Step times and delays: profile ([a-z]+)", page) == ["test", "faster"]


NASTY = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(2)>&amp;"


def test_all_text_is_escaped(tmp_path: Path) -> None:
    figure = new_figure(1, 1)
    grid = Grid(NASTY, [NASTY], [[NASTY]], NASTY)
    page = html_of(ReportPage(NASTY, NASTY, ((NASTY, NASTY),), NASTY, ((figure, NASTY),), (grid,)))
    parsed, plain = Parsed(page), Parsed(html_of(ReportPage("a", "a", (("a", "a"),), "a", ((figure, "a"),), ())))
    assert parsed.misfits == []
    assert parsed.count("script") == plain.count("script") == 1
    assert parsed.count("svg") == plain.count("svg") == 2
    assert NASTY in parsed.text
    named = tmp_path / "run.parquet"
    specfleet.simulate("star", {"name": NASTY[:60], "workload.requests": 12}).save(named)
    assert Parsed(specfleet.report(named)).count("script") == 1


def test_large_tables_are_cut_and_say_so() -> None:
    cut = Grid("cells", ["n"], [[float(number)] for number in range(20_000)])
    page = html_of(ReportPage("a", "a", (), "", (), (cut,)))
    assert len(page.encode()) < MAX_BYTES
    assert f"{20_000 - MAX_ROWS} more rows are in the results" in page


@pytest.mark.parametrize("third", [{"drafters.count": [0, 1]}, {"link.bandwidth_bytes_per_s": [125000000, 125000001]}])
def test_a_sweep_of_three_keys_has_figures_of_its_best_cell(third: dict[str, list[int]], tmp_path: Path) -> None:
    vary = {"verifiers.count": [1, 2], "drafters.depth": [3, 5]} | third
    specfleet.sweep("star", vary, {"workload.requests": 24}, out=tmp_path, seeds=1, jobs=1)
    assert 1 <= Parsed(specfleet.report(tmp_path)).count("figure") <= 3


def test_values_of_a_table_are_words_and_numbers(tmp_path: Path) -> None:
    vary, few = {"verifiers.prefix_cache": [True], "slo.tpot_s": ["20ms"]}, {"workload.requests": 8}
    specfleet.sweep("serving", vary, few, out=tmp_path, seeds=1, jobs=1)
    assert '<tr><td>true</td><td class="n" data-v="0.02">' in specfleet.report(tmp_path)


def test_a_page_has_the_cells_of_the_last_sweep_alone(tmp_path: Path) -> None:
    counts, depths = {"verifiers.count": [1, 2]}, {"drafters.depth": [2, 3]}
    for seeds, vary, changes in ((3, counts, {}), (1, {"drafters.depth": [4]}, {"profile": ""}), (1, depths, {})):
        specfleet.sweep("star", vary, {"workload.requests": 24} | changes, out=tmp_path, seeds=seeds, jobs=1)
    page = specfleet.report(tmp_path)
    assert re.findall(r"seeds a cell</td><td[^>]*>(\d)", page) == ["1"]
    assert "InputError" not in page, "of the cell that failed before"


def test_plans_by_devices_and_of_methods_have_pages(tmp_path: Path) -> None:
    few = {"workload.new_tokens": 20, "drafters.depth": 2}
    devices = specfleet.plan(None, few, devices="2xh100", target="llama-3.1-8b:bf16", in_flight=4)
    methods = specfleet.plan(None, few, target="llama-3.1-8b@h100", in_flight=[1, 2], draft="lookup", acceptance=0.5)
    for name, found in (("devices", devices), ("methods", methods)):
        write_file(tmp_path / name / "plan.json", msgspec.json.encode(found))
        page = specfleet.report(tmp_path / name)
        assert Parsed(page).misfits == []
        text = Parsed(page).text
        assert found.question in text
        assert re.search(r" a user waits 0\.\d+ s for the first token, then gets [\d.]+ tokens/s; a request ", text)
        assert re.search(r"t costs \$[\d.]+ an hour, \$[\d.]+ for a million tokens \(assumed prices\), at ", text)
        if name == "devices":
            assert "Run llama-3.1-8b on 2 x h100: 1 server in bf16, without speculative decoding." in text
            assert ". Limit: beyond " in text
    assert "a draft token is accepted with probability 50% if all before it were." in Parsed(page).text
    assert "Simulated; step times estimated, not measured." in Parsed(page).text


def test_a_sweep_without_a_cell_that_succeeded_says_so(tmp_path: Path) -> None:
    specfleet.sweep("star", {"verifiers.count": [1]}, {"profile": ""}, out=tmp_path, seeds=1, jobs=1)
    with pytest.raises(InputError, match="has no cell that succeeded"):
        specfleet.report(tmp_path)


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"rows": 3}')
    (tmp_path / "text.parquet").write_text("no")
    for place, said in (
        (".", "holds no results; allowed: a run"), ("nowhere", "is neither file nor folder; allowed: a run"),
        ("a" * 300, "is neither file nor folder"),
        ("other.json", "not a plan"), ("text.parquet", "text.parquet"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            specfleet.report(tmp_path / place)
