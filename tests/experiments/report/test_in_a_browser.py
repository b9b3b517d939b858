"""A report in a real browser: sorting, and that no request leaves; skipped where there is no browser."""

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


def test_a_page_loads_nothing_else_and_its_script_runs(browser: Browser, page: Path) -> None:
    assert browser.requests() == [page.as_uri()]
    assert browser.errors() == []
    assert browser.value("performance.getEntriesByType('resource').length") == 0


def test_even_a_script_in_it_cannot_send_anything(browser: Browser) -> None:
    """The policy in the page keeps it from asking a server of this host, which is there and waits."""
    requests: list[str] = []

    class Waiting(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Waiting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        outcome = browser.value(f"fetch('{address}/a').then(() => 'sent', () => 'refused')")
        loading = f"i.onerror = () => done('refused'); i.src = '{address}/b'"
        image = f"new Promise(done => {{ const i = new Image(); {loading}; }})"
        assert (outcome, browser.value(image)) == ("refused", "refused")
        server.shutdown()
    assert requests == []


@pytest.mark.parametrize("column", [0, 2, -1])
def test_a_heading_sorts_its_column_both_ways(browser: Browser, column: int) -> None:
    table = "document.querySelector('table')"
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
