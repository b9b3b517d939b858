"""A report in a real browser: hover, zoom, sort, and that no request leaves; skipped where there is no browser."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import specfleet
from tests.helpers.browser import Browser, find, opened

COMMAND = find()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMMAND is None, reason="no Chromium; SPECFLEET_BROWSER may name one"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swept")
    small = {"workload.requests": 24, "workload.new_tokens": 32}
    specfleet.sweep("star", ["verifiers.count=1,2,4", "drafters.depth=2,5"], small, out=folder, seeds=2, jobs=1)
    specfleet.report(folder, folder / "page.html")
    return folder / "page.html"


@pytest.fixture
def browser(page: Path, tmp_path: Path) -> Iterator[Browser]:
    assert COMMAND is not None
    with opened(COMMAND, tmp_path / "profile") as browser:
        browser.open(page.as_uri())
        yield browser


def place_of(browser: Browser, selector: str) -> tuple[float, float]:
    """The middle of an element in the window, which is scrolled to it."""
    script = f"""(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: "center"}});
        const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"""
    x, y = browser.value(script)
    return float(x), float(y)


def test_a_page_loads_itself_and_nothing_else_and_its_script_runs(browser: Browser, page: Path) -> None:
    assert browser.requests() == [page.as_uri()]
    assert browser.errors() == []
    assert browser.value("performance.getEntriesByType('resource').length") == 0


def test_even_a_script_in_it_cannot_send_anything(browser: Browser) -> None:
    """The policy in the page keeps it from asking a server of this host, which is there and waits."""
    asked: list[str] = []

    class Waiting(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Waiting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        told = browser.value(f"fetch('{address}/a').then(() => 'sent', () => 'refused')")
        loading = f"i.onerror = () => done('refused'); i.src = '{address}/b'"
        image = f"new Promise(done => {{ const i = new Image(); {loading}; }})"
        assert (told, browser.value(image)) == ("refused", "refused")
        server.shutdown()
    assert asked == []


def test_a_dot_tells_its_values_where_the_pointer_is(browser: Browser) -> None:
    x, y = place_of(browser, "circle[data-t]")
    browser.mouse("mouseMoved", x, y)
    shown = browser.value("[tip.style.display, tip.textContent]")
    dots = browser.value("[...document.querySelectorAll('circle[data-t]')].map(e => e.dataset.t)")
    assert shown[0] == "block"
    assert shown[1] in dots
    browser.mouse("mouseMoved", 1, 1)
    assert browser.value("tip.style.display") == "none"


TICKS = "[...document.querySelector('svg.chart').querySelectorAll('.xticks text')].map(e => Number(e.textContent))"
DOTS = "[...document.querySelector('svg.chart').querySelectorAll('circle')].map(e => e.getAttribute('cx'))"


def test_a_stroke_zooms_into_a_figure_and_a_double_click_shows_all_again(browser: Browser) -> None:
    x, y = place_of(browser, "svg.chart")
    before = browser.value(TICKS), browser.value(DOTS)
    browser.mouse("mousePressed", x - 60, y, button="left", clickCount=1)
    browser.mouse("mouseMoved", x + 60, y, button="left")
    browser.mouse("mouseReleased", x + 60, y, button="left", clickCount=1)
    ticks = browser.value(TICKS)
    assert max(ticks) - min(ticks) < 0.7 * (max(before[0]) - min(before[0]))
    assert browser.value(DOTS) != before[1]
    for count in (1, 2):
        browser.mouse("mousePressed", x, y, button="left", clickCount=count)
        browser.mouse("mouseReleased", x, y, button="left", clickCount=count)
    assert browser.value(TICKS) == before[0]
    assert [round(float(at), 1) for at in browser.value(DOTS)] == [round(float(at), 1) for at in before[1]]


def test_the_wheel_scrolls_the_page_until_a_figure_is_clicked_and_zooms_then(browser: Browser) -> None:
    x, y = place_of(browser, "svg.chart")
    before = browser.value(DOTS)
    options = f"{{deltaY: -100, cancelable: true, clientX: {x}, clientY: {y}}}"
    turn = f"document.querySelector('svg.chart').dispatchEvent(new WheelEvent('wheel', {options}))"
    assert browser.value(turn), "not taken from the page"
    assert browser.value(DOTS) == before
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    browser.mouse("mouseReleased", x, y, button="left", clickCount=1)
    assert not browser.value(turn)
    assert browser.value(DOTS) != before


@pytest.mark.parametrize("column", [0, 2, -1])
def test_a_heading_sorts_its_column_both_ways(browser: Browser, column: int) -> None:
    table = "document.querySelector('table.sort')"
    cell = f"[...r.cells].at({column})"
    values = f"[...{table}.tBodies[0].rows].map(r => {cell}.dataset.v ? Number({cell}.dataset.v) : {cell}.textContent)"
    for direction in ("ascending", "descending"):
        browser.value(f"[...{table}.tHead.rows[0].cells].at({column}).firstChild.click()")
        shown = browser.value(values)
        assert shown == sorted(shown, reverse=direction == "descending")
        assert browser.value(f"[...{table}.tHead.rows[0].cells].at({column}).getAttribute('aria-sort')") == direction


def test_on_a_phone_nothing_is_wider_than_the_window(browser: Browser) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    assert browser.value("document.documentElement.scrollWidth") <= 390


def test_on_paper_tables_are_whole(browser: Browser) -> None:
    browser.call("Emulation.setEmulatedMedia", media="print")
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 2).length"
    assert browser.value(cut) == 0
