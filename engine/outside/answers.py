"""From a server to a run: it is asked, and its answers are timed.

Requests and their tokens are known, steps and drafts are not.
"""

import contextlib
import http.client
import json
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from specfleet.engine.node.named import check_stated
from specfleet.engine.outside.job import Asked, Job, Served, job_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.recorder import Log
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.records.schema import Row
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import Request, streams_of

KEY = "OPENAI_API_KEY"  # environment variable
TIMEOUT_S = 600.0  # without any byte of an answer
PROGRESS_S = 10.0
COUNTED = {  # counters of a server's metrics page, by what they count; the first word is the engine's
    "rounds": r"spec_decode_num_drafts(_total)?",
    "accepted": r"spec_decode_num_accepted_tokens(_total)?",
}
TOGETHER_S = 3e-4  # between tokens of one round, where the server does not count its rounds; steps take longer
MAX_TOKENS = 10**9  # tokens of a round, without a limit


class Answer(msgspec.Struct, frozen=True):
    """A request as its client saw it; times in seconds since the run began.

    - `chunks`: when each chunk with tokens came, and how many tokens it had.
    - `stated`: tokens of the answer by the server's own count; None if it has none.
    """

    number: int
    sent_s: float
    chunks: tuple[tuple[float, int], ...]
    stated: int | None = None

    @property
    def tokens(self) -> int:
        """Its tokens, as they came."""
        return sum(tokens for _, tokens in self.chunks)


class Answers(msgspec.Struct, frozen=True):
    """The answers to a workload, and what the server's counters rose by meanwhile, as far as it has them."""

    answers: tuple[Answer, ...]
    counted: dict[str, int]


def ask_all(url: str, job: Job, report: Callable[[str], None] = lambda _line: None) -> Answers:
    """Send a workload to a server, stream by stream, and return its answers.

    Raises InputError where the server cannot be reached, refuses a request, or breaks off an answer.
    """
    server = Server(url)
    before = server.counters()
    answers: list[Answer] = []
    errors: list[BaseException] = []
    over = threading.Event()
    count = sum(map(len, job.streams))
    said_s = zero_s = time.perf_counter()

    def serve(stream: Sequence[Asked]) -> None:
        try:
            for asked in stream:
                if over.is_set():
                    return
                answers.append(server.ask(asked, job.sampling, zero_s))
        except BaseException as error:  # noqa: BLE001  (raised below)
            errors.append(error)
        if errors or len(answers) == count:
            over.set()

    try:
        for stream in sorted(job.streams, key=lambda stream: stream[0].not_before_s):
            over.wait(max(stream[0].not_before_s - (time.perf_counter() - zero_s), 0))
            threading.Thread(target=serve, args=(stream,), name="stream", daemon=True).start()  # Ctrl-C ends them
            if time.perf_counter() - said_s > PROGRESS_S:
                said_s = time.perf_counter()
                report(f"{server.name}: {len(answers)} of {count} requests")
        while len(answers) < count and not over.wait(PROGRESS_S):
            report(f"{server.name}: {len(answers)} of {count} requests")
    finally:
        over.set()
    if errors:
        raise errors[0]
    counted = {name: value - before.get(name, 0) for name, value in server.counters().items()}
    return Answers(tuple(sorted(answers, key=lambda answer: answer.number)), counted)


class Server:
    """A server by its address, such as http://localhost:8000; each request has a connection of its own."""

    def __init__(self, url: str) -> None:
        try:
            self.url: SplitResult = urlsplit(url)
            is_address = self.url.scheme in ("http", "https") and self.url.hostname and self.url.port != 0
        except ValueError:  # of brackets, or of a port
            is_address = False
        if not is_address:
            raise InputError(f"--server {url}: needs an address such as http://localhost:8000")
        self.name = f"{self.url.scheme}://{self.url.netloc}"
        self.root = self.url.path.rstrip("/").removesuffix("/v1")
        self.model = self._model()

    def ask(self, asked: Asked, sampling: Mapping[str, float], zero_s: float) -> Answer:
        """Send a request and read its answer to the end."""
        content = {
            "model": self.model, "prompt": asked.prompt, "max_tokens": asked.new_tokens, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "seed": asked.number, **sampling,
        }  # fmt: skip
        sent_s, chunks, stated, known = time.perf_counter() - zero_s, list[tuple[float, int]](), None, 0
        done = False
        with contextlib.closing(self._lines("POST", "/v1/completions", content)) as lines:
            for line in lines:
                done = done or line.replace(b" ", b"") == b"data:[DONE]"
                if done or not line.startswith(b"data:"):
                    continue
                came_s, event = time.perf_counter() - zero_s, self._parsed(line[5:])
                if "error" in event:
                    raise InputError(f"{self.name}: request {asked.number}: {json.dumps(event['error'])[:300]}")
                usage = event.get("usage") or {}
                stated = usage.get("completion_tokens", stated)
                if event.get("choices") and (usage or event["choices"][0].get("text")):
                    tokens = usage["completion_tokens"] - known if usage else 1
                    known += tokens
                    if tokens:
                        chunks.append((came_s, tokens))
        if not done or not chunks:
            raise InputError(f"{self.name}: request {asked.number}: its answer has no {'token' if done else 'end'}")
        return Answer(asked.number, sent_s, tuple(chunks), stated)

    def counters(self) -> dict[str, int]:
        """Return what the metrics page counts, summed over its labels; nothing where there is no page."""
        try:
            text = b"\n".join(self._lines("GET", "/metrics")).decode(errors="replace")
        except InputError:
            return {}
        counts = {}
        for name, pattern in COUNTED.items():
            values = re.findall(rf"^\w+:{pattern}(?:\{{[^\n]*\}})?\s+([0-9.eE+]+)", text, re.MULTILINE)
            if values:
                counts[name] = round(sum(float(value[-1]) for value in values))
        return counts

    def _model(self) -> str:
        listed = self._parsed(b"".join(self._lines("GET", "/v1/models"))).get("data")
        if not listed:
            raise InputError(f"{self.name}/v1/models: lists no model")
        return str(listed[0]["id"])

    def _lines(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> Generator[bytes]:
        """Yield the lines of an answer as they come; InputError for a status other than 200."""
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.netloc, timeout=TIMEOUT_S)
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        try:
            connection.request(method, self.root + path, None if content is None else json.dumps(content), headers)
            with connection.getresponse() as answer:
                if answer.status != http.HTTPStatus.OK:
                    said = " ".join(answer.read(500).decode(errors="replace").split())
                    raise InputError(f"{self.name}{self.root}{path}: status {answer.status}: {said[:300]}")
                while line := answer.readline():
                    yield line.rstrip()
        except (OSError, http.client.HTTPException) as error:
            raise InputError(f"{self.name}{self.root}{path}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise InputError(f"{self.name}: answers with {line[:80]!r}, which is no JSON object") from error


def run_on_server(scenario: Scenario, url: str, report: Callable[[str], None] = lambda _line: None) -> Run:
    """Send a scenario's requests to an OpenAI-compatible server, and return the run.

    The workload is the scenario's; its other keys describe the server, and are not checked there. `report` is called
    with lines on progress, acceptance, and counts that do not add up. Raises InputError as `ask_all`.
    """
    fleet = msgspec.structs.replace(resolve(scenario), request_s=0.0)  # its answers have that time
    check_stated(fleet)
    job = job_of(fleet)
    answers = ask_all(url, job, report)
    for line in remarks(answers, {request.number: request.new_tokens for stream in job.streams for request in stream}):
        report(line)
    return run_of(scenario, fleet, answers, f"server {url}")


def run_of(scenario: Scenario, fleet: Fleet, answers: Answers, engine: str) -> Run:
    """Return the run of a scenario that an engine gave those answers to."""
    most = fleet.drafters.depth + 1 if fleet.drafters.count else MAX_TOKENS
    log = log_of(streams_of(fleet), answers, between_rounds_s(answers, fleet), most)
    return make_run(scenario, "engine", log, fleet, engine=engine, steps=False)


def answers_of(served: Served) -> Answers:
    """Return what a client would have seen of an engine that was watched step by step."""
    chunks: dict[int, list[tuple[float, int]]] = {number: [] for number in served.joined_s}
    for step in served.steps:
        for number, (_, _, tokens) in step.rows.items():
            if tokens:
                chunks[number].append((step.end_s, tokens))
    return Answers(tuple(Answer(number, served.joined_s[number], tuple(seen)) for number, seen in chunks.items()), {})


def between_rounds_s(answers: Answers, fleet: Fleet) -> float:
    """Return the time from which on tokens are of different rounds; a server may send those of a round one by one.

    Where it counts its drafts, as many of the longest gaps as it had steps are those between rounds. A step has one
    token that is not of a draft, so the accepted tokens give steps without a draft, too. They are too few where a
    server counts tokens beyond the end of an answer, as vLLM does; with found drafts no count is right.
    """
    gaps_s = sorted(after[0] - before[0] for answer in answers.answers for before, after in pairwise(answer.chunks))
    drafts = answers.counted.get("rounds", 0) if not fleet.drafters.finds else 0
    later = sum(answer.tokens for answer in answers.answers) - len(answers.answers)
    steps = max(drafts, later - answers.counted.get("accepted", later))
    return gaps_s[-steps] if drafts and 0 < steps <= len(gaps_s) else TOGETHER_S


def rounds_of(answer: Answer, between_s: float = TOGETHER_S, most: int = MAX_TOKENS) -> tuple[tuple[float, int], ...]:
    """Return when each round of a request ended, and its tokens; less than `between_s` apart are those of one.

    - `most`: tokens of a round.
    """
    rounds: list[tuple[float, int]] = []
    for came_s, tokens in answer.chunks:
        if rounds and came_s - rounds[-1][0] < between_s and rounds[-1][1] + tokens <= most:
            rounds[-1] = came_s, rounds[-1][1] + tokens
        else:
            rounds.append((came_s, tokens))
    return tuple(rounds)


def log_of(
    streams: Mapping[int, list[Request]], answers: Answers, between_s: float = TOGETHER_S, most: int = MAX_TOKENS
) -> Log:
    """Return the rows of the event table: of each request its arrival, and its rounds as if each were a step of it."""
    by_number = {answer.number: answer for answer in answers.answers}
    rows = [
        row
        for tag, requests in streams.items()
        for request in requests
        for row in _rows(tag, request, by_number[request.number], between_s, most)
    ]
    log: Log = []
    for seq, row in enumerate(sorted(rows, key=lambda row: row.time_s)):
        log += row._replace(seq=seq, step=seq)
    return log


def _rows(tag: int, request: Request, answer: Answer, between_s: float, most: int) -> Iterator[Row]:
    goal = request.prompt_tokens + request.new_tokens
    row = Row(answer.sent_s, verifier_name(0), 0, "join", "real", tag=tag, request=request.number, goal=goal)
    yield row._replace(tokens=request.prompt_tokens)
    base = request.prompt_tokens
    for number, (came_s, tokens) in enumerate(rounds_of(answer, between_s, most)):
        kind = "verify" if number else "prefill"
        yield row._replace(time_s=came_s, event="done", kind=kind, base=base, accepted=tokens - 1, goal=0, epoch=number)
        base += tokens


def remarks(answers: Answers, asked: Mapping[int, int]) -> Iterator[str]:
    """Yield lines on counts that do not add up, and on acceptance, which only a server's counters have.

    - `asked` (tokens): length of each answer, by request.
    """
    shorter = [answer.number for answer in answers.answers if answer.tokens < asked[answer.number]]
    if shorter:
        yield (
            f"note: {len(shorter)} of {len(asked)} answers end early, request {shorter[0]} first: the server does not "
            "ignore the end of text; TTFT, TPOT and latency leave them out"
        )
    for answer in answers.answers:
        if answer.stated is not None and answer.stated != answer.tokens:
            yield f"note: request {answer.number} has {answer.tokens} tokens in chunks, and {answer.stated} by `usage`"
    rounds, accepted = answers.counted.get("rounds", 0), answers.counted.get("accepted", 0)
    if not rounds:
        return
    yield f"acceptance by /metrics: {accepted / rounds:.2f} draft tokens a round, without the bonus token"
    seen = sum(len(answer.chunks) - 1 for answer in answers.answers)
    if rounds > seen:
        yield f"note: the server counts {rounds} rounds, the client saw {seen}: some came together, or others ask, too"
