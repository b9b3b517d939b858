"""The page under sliders: its numbers are the equations' and the simulator's, and only the page gets them."""

import http.client
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

import specfleet
from experiments.explore import answers
from experiments.explore.answers import Analytic, Explorer
from experiments.explore.serve import HOST, explore_page, page_of
from fleet.acceptance.models import Geometric, expected_accepted
from fleet.errors import InputError
from sim import analytic
from tests.helpers.processes import ended
from tests.helpers.processes import specfleet as start_specfleet
from tests.helpers.signals import assert_ended_by, tell

START = {"N": 4, "depth": 5, "beta": 0.75, "draft_base_ms": 3.63, "draft_token_ms": 1.36, "verify_ms": 26.1,
         "link_ms": 2.5, "arrivals_per_s": 0.0}  # fmt: skip
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with explore_page(specfleet.scenario_of("star")) as address:
        yield address


def asked(address: str, path: str, content: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and content of an answer; without a question, of the page."""
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=60)
    body = content if content is None or isinstance(content, str | bytes) else json.dumps(content)
    connection.request("GET" if body is None else "POST", path, body, JSON | headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


CHANGES: list[dict[str, Any]] = [
    {}, {"N": 1}, {"N": 64, "depth": 2}, {"beta": 1.0, "verify_ms": 0.0, "link_ms": 0.0}, {"draft_base_ms": 0.0},
    {"beta": 0.0, "N": 256}, {"verify_ms": 900.0, "arrivals_per_s": 3.0},
]  # fmt: skip


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_endpoint_answers_with_the_equations(address: str, changes: dict[str, Any]) -> None:
    at = START | changes
    S_s = (at["draft_base_ms"] + at["depth"] * at["draft_token_ms"]) / 1e3
    Z_s = (2 * at["link_ms"] + at["verify_ms"]) / 1e3
    accepted = expected_accepted(Geometric(at["beta"]), at["depth"])
    expected = analytic.predict_star(at["N"], S_s, Z_s, accepted, 1 / 0.0261)
    status, content = asked(address, "/analytic", at)
    assert status == 200, content
    got = msgspec.json.decode(content, type=Analytic)
    for name, value in msgspec.to_builtins(expected).items():
        assert msgspec.to_builtins(got.star)[name] == (value if isinstance(value, str) else pytest.approx(value)), name
    assert got.tpot_s == pytest.approx(expected.iteration_s / (accepted + 1))
    assert got.curve == pytest.approx(
        [analytic.throughput(N, S_s, Z_s, accepted + 1) for N in range(1, len(got.curve) + 1)]
    )
    assert len(got.curve) >= min(256, max(at["N"], expected.N_full))
    assert got.offered_tokens_per_s == 96 * at["arrivals_per_s"]


@pytest.mark.parametrize("name", ["star", "intra-node", "edge-server", "tree"])
def test_sliders_start_at_the_scenario(name: str) -> None:
    explorer, expected = Explorer(specfleet.scenario_of(name)), specfleet.analytic(name)
    star = explorer.analytic(explorer.start).star
    for key in ("S_s", "Z_s", "N", "N_full", "throughput_per_target"):
        assert msgspec.to_builtins(getattr(star, key)) == pytest.approx(msgspec.to_builtins(getattr(expected, key)))


def test_other_acceptance_starts_at_as_many_tokens() -> None:
    changed = specfleet.scenario_of("star", acceptance={"model": "per-position", "survival": [0.9, 0.7, 0.5, 0.3, 0.2]})
    explorer = Explorer(changed)
    star = explorer.analytic(explorer.start).star
    assert star.acceptance_length == pytest.approx(specfleet.analytic(changed).acceptance_length)


@pytest.mark.parametrize("arrivals_per_s", [0.0, 2.0])
def test_a_simulation_is_that_of_the_scenario_at_the_sliders(address: str, arrivals_per_s: float) -> None:
    status, content = asked(address, "/simulated", START | {"N": 3, "verify_ms": 40, "arrivals_per_s": arrivals_per_s})
    assert status == 200, content
    workload: dict[str, Any] = {"requests": 1044}
    if arrivals_per_s:
        workload["arrivals"] = {"process": "poisson", "per_s": arrivals_per_s}
    changes = {"verifiers.count": 3, "verifiers.tiers": [{"first": 1, "step": {"base_s": 0.04}}]}
    expected = specfleet.simulate("star", changes, workload=workload).metrics["throughput"]
    assert json.loads(content)["metrics"]["throughput"]["value"] == pytest.approx(expected.value)


def test_one_simulation_runs_at_a_time(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, observe = threading.Event(), threading.Event(), answers.observe

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert goes_on.wait(60)
        return observe(*arguments)

    monkeypatch.setattr(answers, "observe", slow)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(asked, address, "/simulated", START)
        assert begun.wait(60)
        assert asked(address, "/simulated", START)[0] == 503
        assert asked(address, "/analytic", START)[0] == 200
        goes_on.set()
        assert first.result()[0] == 200


BAD: list[tuple[Any, str]] = [
    ("{", "not JSON"), (b"\xff", "not JSON"), ("[" * 4000, "not JSON"), ([], "sliders"), ({}, "N"),
    (START | {"N": 0}, "N = 0"), (START | {"N": 257}, "N = 257"), (START | {"N": 2.5}, "N = 2.5"),
    (START | {"beta": 1.1}, "beta"), (START | {"beta": "x\ny"}, "beta"), (START | {"link_ms": -1}, "link_ms"),
    (START | {"extra": 1}, "extra"), (json.dumps(START).replace("2.5", "NaN"), "NaN"),
    (START | {"draft_base_ms": 0, "draft_token_ms": 0}, "drafts take no time"), (" " * 5000, "Content-Length '5000'"),
]  # fmt: skip


@pytest.mark.parametrize("path", ["/analytic", "/simulated"])
@pytest.mark.parametrize(("content", "said"), BAD, ids=lambda value: str(value)[:40])
def test_wrong_input_is_one_line_of_json(address: str, path: str, content: Any, said: str) -> None:
    status, answer = asked(address, path, content)
    if path == "/simulated" and "take no time" in said:
        return  # a simulation knows drafts at no cost
    error = json.loads(answer)["error"]
    assert (status, "\n" in error) == (400, False)
    assert said in error


def test_too_many_tokens_are_refused() -> None:
    explorer = Explorer(specfleet.scenario_of("star", {"workload.new_tokens": 40_000}))
    with pytest.raises(InputError, match="N = 4: 16 requests of 40000 tokens are too much"):
        explorer.simulate(explorer.start)


FOREIGN = [
    {"Host": "evil.example"}, {"Host": f"{HOST}:1"}, {"Origin": "http://evil.example"}, {"Origin": "null"},
    {"Origin": f"http://{HOST}:1"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
]  # fmt: skip


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("path", ["/", "/analytic", "/simulated"])
def test_other_pages_and_names_are_refused(address: str, path: str, headers: dict[str, str]) -> None:
    status, content = asked(address, path, None if path == "/" else START, **headers)
    assert (status, list(json.loads(content))) == (403, ["error"])


def test_what_any_page_may_send_is_no_question(address: str) -> None:
    assert asked(address, "/simulated", START, **{"Content-Type": "text/plain"})[0] == 400
    assert [asked(address, "/nothing", one)[0] for one in (None, START)] == [404, 404]


def test_a_link_to_the_page_may_be_followed(address: str) -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    assert asked(address, "/", **followed)[0] == 200
    assert asked(address, "/simulated", START, **followed)[0] == 403


def test_the_page_is_its_own_and_refers_to_nothing(address: str) -> None:
    named = specfleet.scenario_of("star", name="</script><script>alert(1)</script>")
    content, policy = page_of(Explorer(named))
    text = content.decode()
    assert set(re.findall(r"https?://[\w.]+", text)) == {"http://www.w3.org"}, "names of markup, which nothing loads"
    assert re.findall(r"""(?:src|href|action)\s*=\s*["']?([^"'>]*)|url\(|@import""", text) == ["data:,"]
    assert text.count("<script") == text.count("<style") == 1
    assert not re.search(r"unsafe|\*|https?:", policy)
    assert asked(address, "/")[0] == 200


@pytest.mark.parametrize("name", ["m-for-n", "inter-node", "serving"])
def test_what_is_no_star_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="the equations hold for one star"), explore_page(specfleet.scenario_of(name)):
        pass


def test_the_command_prints_its_address_and_ends_by_ctrl_c() -> None:
    process = start_specfleet("explore", "--set", "verifiers.count=2")
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert re.fullmatch(rf"http://{HOST}:\d+/", address)
    assert asked(address, "/analytic", START)[0] == 200
    status, out, err = ended(start_specfleet("explore", "--port", address.split(":")[2].strip("/")))
    assert (status, out, "give another port" in err, len(err.splitlines())) == (2, "", True, 1)
    tell(process, "Ctrl-C")
    assert_ended_by(process, "Ctrl-C", "nothing was written")
