"""The page in a real browser: keys move a slider and the numbers, and no other page can ask; skipped without one."""

from collections.abc import Iterator
from typing import Any

import pytest

import specfleet
from experiments.explore import answers
from experiments.explore.serve import explore_page
from tests.helpers.browser import COMMAND, NO_BROWSER, Tab, new_tab

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMMAND is None, reason=NO_BROWSER)]
READY = "document.querySelector('#numbers td')"
THROUGHPUT = "document.querySelector('#numbers td').textContent"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with explore_page(specfleet.scenario_of("star")) as address:
        yield address


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with new_tab(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


def test_keys_move_a_slider_and_the_numbers(tab: Tab, address: str) -> None:
    tab.open(address)
    tab.until(READY)
    assert tab.value(THROUGHPUT) == f"{specfleet.analytic('star').throughput.with_bonus:.4g}"
    tab.press("Tab")
    tab.press("Tab")
    assert tab.value("document.activeElement.id") == "depth"
    tab.press("ArrowRight")
    deeper = specfleet.analytic("star", {"drafters.depth": 6})
    tab.until(f"{THROUGHPUT} === '{deeper.throughput.with_bonus:.4g}'")
    tab.until(f"spoken.textContent.includes('N_full = {deeper.N_full}')")
    assert "6 tokens assumed" in tab.value("document.activeElement.parentNode.innerText")


def test_a_key_simulates_and_the_point_says_so(tab: Tab, address: str) -> None:
    tab.open(address)
    tab.until(READY)
    tab.value("document.getElementById('simulate').focus()")
    tab.press("Enter")
    tab.until("[...document.querySelectorAll('svg text')].some((one) => / simulated$/.test(one.textContent))")
    assert " to " in tab.value("document.querySelectorAll('#numbers td')[1].textContent"), "its interval"
    own = "performance.getEntriesByType('resource').every((one) => one.name.startsWith(location.origin + '/'))"
    assert tab.value(own)


@pytest.mark.parametrize("width", [320, 390, 640, 1200])
def test_nothing_is_wider_than_the_window(tab: Tab, address: str, width: int) -> None:
    tab.open(address, width, 700)
    tab.until(READY)
    assert tab.value("document.documentElement.scrollWidth") <= width


def test_another_page_makes_it_simulate_nothing(tab: Tab, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(answers, "observe", lambda *arguments: ran.append(arguments))
    tab.open("data:text/html,another")
    for kind in ("text/plain", "application/json"):
        question = f"{{method: 'POST', mode: 'no-cors', headers: {{'Content-Type': '{kind}'}}, body: '{{}}'}}"
        tab.value(f"fetch('{address}simulated', {question}).then(() => 0, () => 0)")
    assert tab.value(f"fetch('{address}').then(() => 'read', () => 'refused')") == "refused"
    assert ran == []


def test_a_script_in_the_page_cannot_send(tab: Tab, address: str) -> None:
    tab.open(address)
    tab.until(READY)
    refused = (
        "new Promise((done) => addEventListener('securitypolicyviolation', (one) => done(one.effectiveDirective)))"
    )
    assert tab.value(f"[{refused}, fetch('http://127.0.0.1:1/').catch(() => 0)][0]") == "connect-src"
