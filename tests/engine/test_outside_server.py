"""Runs on an OpenAI-compatible server: a small one of the tests, which can fail in several ways."""

import gc
import http.server
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

pytest.importorskip("torch")

import specfleet
from specfleet.calibration.loops import other_engine
from specfleet.engine.outside import answers
from specfleet.engine.outside.answers import Answer, Answers, between_rounds_s, rounds_of, run_on_server
from specfleet.experiments.draw import timeline_of
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import measure, measure_targets
from specfleet.fleet.records.playback import playback_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from tests.helpers.processes import ended, start

PAUSE_S = 0.002
HANGS_S = 30.0
CHUNKS = (1, 3, 2, 4)  # tokens of each


def scenario(**workload: Any) -> Scenario:
    lengths = {"prompt_tokens": 16, "new_tokens": sum(CHUNKS), "requests": 6, "streams": 2}
    return make_scenario({"name": "served", "drafters": {"place": "target"}, "workload": lengths | workload})


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers in chunks of several tokens. `fault`: what goes wrong; `asked`: contents of all requests.

    `goes_on`: set when a server that "hangs" may answer.
    """

    fault: ClassVar[str] = ""
    asked: ClassVar[list[dict[str, Any]]] = []
    goes_on: ClassVar[threading.Event] = threading.Event()

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._say(json.dumps({"data": [] if self.fault == "no model" else [{"id": "small"}]}))
        elif self.fault == "no metrics":
            self.send_error(404)
        else:
            rounds = len(self.asked) * (len(CHUNKS) - 1) * (2 if self.fault == "merged" else 1)
            labels = '{model_name="small"}'
            self._say(
                "# HELP vllm:spec_decode_num_drafts_total Rounds.\n"
                f"vllm:spec_decode_num_drafts_total{labels} {rounds}.0\n"
                f"vllm:spec_decode_num_accepted_tokens_total{labels} {2 * rounds}\n"
            )

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(content)
        if self.fault == "hangs":
            self.goes_on.wait(HANGS_S)
        if self.fault == "status":
            self._say('{"message": "too long"}', 400)
            return
        self.send_response(200)
        self.end_headers()
        known = 0
        for tokens in CHUNKS[: 2 if self.fault == "short" else None]:
            time.sleep(PAUSE_S)
            known += tokens
            usage = {} if self.fault == "no usage" else {"usage": {"completion_tokens": known}}
            self._event({"choices": [{"text": "x" * tokens}]} | usage)
            if self.fault == "error":
                self._event({"error": {"message": "engine died"}})
            if self.fault == "nonsense":
                self.wfile.write(b"data: {\n\n")
        if self.fault == "miscounted":
            self._event({"choices": [], "usage": {"completion_tokens": known + 1}})
        if self.fault != "broken off":
            self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, content: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(content).encode() + b"\n\n")
        self.wfile.flush()

    def _say(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


def test_a_client_of_a_server_needs_no_engine(tmp_path: Path, url: str) -> None:
    hidden = "import tests.helpers.without_engine; from specfleet.cli import main; main()"
    keys = [f"workload.{key}" for key in ("prompt_tokens=16", f"new_tokens={sum(CHUNKS)}", "requests=2", "streams=2")]
    changes = [word for key in ("drafters.place=target", *keys) for word in ("--set", key)]
    (tmp_path / "served.toml").write_text('name = "served"\n')
    status, out, err = ended(start("-c", hidden, "run", tmp_path / "served.toml", *changes, "--server", url))
    assert (status, "tokens/s" in out) == (0, True), err


def test_tokens_that_come_together_are_one_round() -> None:
    one_by_one = Answer(0, 0.0, ((0.1, 1), (0.2, 1), (0.2001, 1), (0.2002, 1), (0.3, 1)))
    assert rounds_of(one_by_one) == ((0.1, 1), (0.2002, 3), (0.3, 1))


def test_a_server_that_counts_its_rounds_says_which_tokens_are_of_one() -> None:
    """Three rounds of 1, 3 and 2 tokens after the first, whose tokens come 2 ms apart and rounds 8 ms."""
    times_s = [0.1, 0.108, 0.116, 0.118, 0.12, 0.128, 0.13]
    answer = Answer(0, 0.0, tuple((time_s, 1) for time_s in times_s))
    fleet = resolve(scenario())
    counted = between_rounds_s(Answers((answer,), {"rounds": 3}), fleet)
    assert rounds_of(answer, counted) == ((0.1, 1), (0.108, 1), (0.12, 3), (0.13, 2))
    assert [tokens for _, tokens in rounds_of(answer, counted, 2)] == [1, 1, 2, 1, 2]  # no round has more
    plain = msgspec.structs.replace(answer, chunks=(*answer.chunks, (0.138, 1), (0.146, 1)))
    apart_s = between_rounds_s(Answers((plain,), {"rounds": 3, "accepted": 3}), fleet)  # two steps without a draft
    assert [tokens for _, tokens in rounds_of(plain, apart_s)] == [1, 1, 3, 2, 1, 1]
    lookup = resolve(change_scenario(scenario(), {"drafters.kind": "lookup"}))  # steps without a draft do not count
    for answers_, of in ((Answers((answer,), {}), fleet), (Answers((answer,), {"rounds": 3}), lookup)):
        assert between_rounds_s(answers_, of) == answers.TOGETHER_S


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(answers, "TOGETHER_S", 0.0)  # a busy host would let chunks come together
    Handler.fault, Handler.asked = "", []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_and_metrics_are_those_of_the_answers(url: str) -> None:
    said: list[str] = []
    run = run_on_server(scenario(), url, said.append)
    rows = run.frame()
    assert len(Handler.asked) == 6
    assert {len(content["prompt"]) for content in Handler.asked} == {16}
    assert all(content["ignore_eos"] and content["max_tokens"] == sum(CHUNKS) for content in Handler.asked)
    assert {content["top_k"] for content in Handler.asked} == {-1}  # all tokens, for every server
    joins, done = rows[rows.event == "join"], rows[rows.event == "done"]
    assert (done.accepted + 1).tolist().count(4) == 6
    assert (done.groupby("request").accepted.sum() + len(CHUNKS) == sum(CHUNKS)).all()
    times = done.groupby("request").time_s
    tpot_s = (times.max() - times.min()) / (sum(CHUNKS) - 1)
    ttft_s = times.min() - joins.set_index("request").time_s
    metrics = measure(run)
    assert tpot_s.min() <= metrics["tpot_s"].value <= tpot_s.max()
    assert ttft_s.min() <= metrics["ttft_s"].value <= ttft_s.max()
    assert not {"load", "target_load", "rounds_per_s", "service_s", "acceptance_length"} & metrics.keys()
    assert said == ["acceptance by /metrics: 2.00 draft tokens a round, without the bonus token"]


def test_a_servers_times_have_no_assumed_time_added(url: str) -> None:
    times = {"draft": {"base_s": 0.01}, "verify": {"base_s": 0.01}, "request_s": 5.0}
    run = run_on_server(change_scenario(scenario(), {"profile": {"name": "estimated"} | times}), url)
    assert measure(run)["ttft_s"].value < 1


def test_streams_wait_for_their_answers(url: str) -> None:
    rows = run_on_server(scenario(), url).frame()
    for _, own in rows.groupby("tag"):
        assert own.request.is_monotonic_increasing
        assert own.event.tolist() == ["join", *["done"] * len(CHUNKS)] * 3


def test_arrivals_come_when_they_are_due(url: str) -> None:
    opened = scenario(streams=0, arrivals={"process": "poisson", "per_s": 40.0})
    joins = run_on_server(opened, url).frame().query("event == 'join'")
    assert joins.time_s.max() > 0.05


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("miscounted", "note: request 0 has 10 tokens in chunks, and 11 by `usage`"),
        ("short", "note: 6 of 6 answers end early, request 0 first"),
        ("merged", "note: the server counts 36 rounds, the client saw 18"),
    ],
)
def test_counts_that_do_not_add_up_are_noted(url: str, fault: str, line: str) -> None:
    Handler.fault, said = fault, list[str]()
    run_on_server(scenario(), url, said.append)
    assert any(one.startswith(line) for one in said), said


def test_a_calibration_keeps_the_notes_of_its_server(url: str) -> None:
    Handler.fault = "miscounted"
    with other_engine(None, {5: url}) as elsewhere:
        assert elsewhere is not None
        elsewhere.run(scenario())
        assert elsewhere.notes == [
            f"request {number} has 10 tokens in chunks, and 11 by `usage`" for number in range(6)
        ]


def test_without_counts_a_chunk_is_a_token(url: str) -> None:
    Handler.fault = "no usage"
    rows = run_on_server(scenario(), url).frame()
    assert (rows[rows.event == "done"].accepted == 0).all()


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("broken off", "request \\d+: its answer has no end"),
        ("status", "status 400: .*too long"),
        ("error", "engine died"),
        ("nonsense", "no JSON"),
        ("no model", "no model"),
    ],
)
def test_a_failing_server_is_an_error_of_one_line(url: str, fault: str, line: str) -> None:
    Handler.fault = fault
    with pytest.raises(InputError, match=line):
        run_on_server(scenario(), url)
    gc.collect()  # an open socket would be a warning, which is an error


def test_an_interrupted_run_waits_for_no_answer(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_line: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(answers, "PROGRESS_S", 0.01)
    Handler.fault, begun_s = "hangs", time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_on_server(scenario(), url, interrupt)
    assert time.monotonic() - begun_s < HANGS_S / 2
    Handler.goes_on.set()


def test_no_server_is_an_error_of_one_line() -> None:
    with pytest.raises(InputError, match=r"127.0.0.1:1/v1/models: ConnectionRefusedError"):
        run_on_server(scenario(), "http://127.0.0.1:1")
    for address in ("localhost", "http://localhost:80a0", "http://[::1", "http://localhost:70000"):
        with pytest.raises(InputError, match="needs an address"):
            run_on_server(scenario(), address)


def test_without_metrics_acceptance_is_unknown(url: str) -> None:
    Handler.fault, said = "no metrics", list[str]()
    run_on_server(scenario(), url, said.append)
    assert said == []


def test_runs_without_steps_are_not_replayed(url: str) -> None:
    run = run_on_server(scenario(), url)
    assert replay(run) == ["it has no steps: only the answers of a server are known"]
    with pytest.raises(InputError, match="no steps"):
        playback_of(run)
    with pytest.raises(InputError, match="a timeline needs steps"):
        timeline_of(run)
    assert "rounds_per_s" not in measure_targets(run)


def test_servers_are_calibrated_each_at_its_draft_length(url: str) -> None:
    served = scenario(requests=12)
    profile = specfleet.calibrate(served, {"verifiers.max_num_seqs": 2}, quick=True, server=[f"5={url}", f"0={url}"])
    assert profile.provenance["engine"] == f"server {url}"
    assert "the client saw" not in profile.provenance.get("notes", "")
    assert profile.sources["draft"].startswith("fitted: within verify, for 5 tokens")
    assert profile.sources["verify_prefill"].startswith("fitted: at prompts of 16 tokens")
    assert isinstance(profile.acceptance, Recorded)
    assert set(profile.acceptance.sessions[0]) <= {tokens - 1 for tokens in CHUNKS}
    for law in (profile.verify, profile.decode):  # a host may be slow, and no clock is quick
        assert law.mean_s(1, 32) > 0.5 * PAUSE_S


def test_what_does_not_add_up_is_in_the_profile(url: str) -> None:
    Handler.fault = "miscounted"
    profile = specfleet.calibrate(scenario(), {"verifiers.max_num_seqs": 1}, quick=True, server=url)
    assert profile.provenance["notes"].count("by `usage`") == 1
    assert re.search(r"and \d+ more", profile.provenance["notes"])
    with pytest.raises(InputError, match="a running server is an engine by itself"):
        specfleet.calibrate(scenario(), server=url, engine="vllm")
