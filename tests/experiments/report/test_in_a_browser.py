"""A report in a real browser: sorting, and that no request leaves; skipped where there is no browser."""

from pathlib import Path

import pytest

import specfleet
from specfleet.experiments.report.page import ReportPage, html_of
from tests.helpers.browser import NEEDS_ONE, value_in

pytestmark = NEEDS_ONE


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swept")
    small = {"workload.requests": 24, "workload.new_tokens": 32}
    specfleet.sweep("star", ["verifiers.count=1,2,4", "drafters.depth=2,5"], small, out=folder, seeds=2, jobs=1)
    specfleet.report(folder, folder / "page.html")
    return folder / "page.html"


def test_a_page_loads_nothing_else_and_its_script_runs(page: Path) -> None:
    assert value_in(page, "[errors, performance.getEntriesByType('resource').length]") == [[], 0]


def test_even_a_script_in_it_cannot_send_anything(page: Path) -> None:
    """The policy in the page refuses it, whether or not there is a server."""
    refused = "addEventListener('securitypolicyviolation', (event) => refused.push(event.effectiveDirective))"
    sending = "fetch('http://127.0.0.1/a').catch(() => 0); new Image().src = 'http://127.0.0.1/b'"
    later = "new Promise((done) => setTimeout(() => done(refused), 100))"
    script = f"(() => {{ refused = []; {refused}; {sending}; return {later}; }})()"
    assert sorted(value_in(page, script)) == ["connect-src", "img-src"]


@pytest.mark.parametrize("column", [0, 2, -1])
def test_a_heading_sorts_its_column_both_ways(page: Path, column: int) -> None:
    table = "document.querySelector('table')"
    heading, cell = f"[...{table}.tHead.rows[0].cells].at({column})", f"[...r.cells].at({column})"
    values = f"[...{table}.tBodies[0].rows].map(r => {cell}.dataset.v ? Number({cell}.dataset.v) : {cell}.textContent)"
    clicked = f"({heading}.firstChild.click(), [{heading}.getAttribute('aria-sort'), {values}])"
    found = value_in(page, f"[{clicked}, {clicked}]")
    assert [direction for direction, _ in found] == ["ascending", "descending"]
    for direction, shown in found:
        assert shown == sorted(shown, reverse=direction == "descending")


def test_a_button_selects_its_command(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(html_of(ReportPage("t", "k", (), "s", (), (), (), (("start", "a 'b' <c>"), ("measure", "d")))))
    clicked = "(document.querySelector('.command button').click(), getSelection().toString())"
    assert value_in(page, clicked) == "a 'b' <c>"


def test_on_a_phone_nothing_is_wider_than_the_window(page: Path) -> None:
    assert value_in(page, "document.body.style.width = '390px', document.querySelector('main').scrollWidth") <= 390


def test_a_phone_sees_small_drawings_in_readable_letters(page: Path) -> None:
    sizes = "[...document.querySelectorAll('figure svg')].filter(e => e.clientWidth).map(e => e.clientWidth)"
    letters = "Math.min(...[...document.querySelectorAll('.narrow text')].map(e => e.getBoundingClientRect().height))"
    wide, (widths, least) = value_in(page, sizes), value_in(page, f"[{sizes}, {letters}]", "(max-width: 560px)")
    assert len(widths) == len(wide) >= 3
    assert least > 8


def test_on_paper_tables_are_whole(page: Path) -> None:
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 2).length"
    assert value_in(page, cut, "print") == 0 < value_in(page, cut)
