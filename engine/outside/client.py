"""A client of an OpenAI-compatible server: it sends the requests of a workload and notes when their tokens come."""

import contextlib
import http.client
import json
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from specfleet.engine.outside.job import Asked, Job
from specfleet.fleet.errors import InputError

KEY = "OPENAI_API_KEY"  # environment variable
TIMEOUT_S = 600.0  # without any byte of an answer
PROGRESS_S = 10.0
COUNTED = {  # counters of a server's metrics page, by what they count; the first word is the engine's
    "rounds": r"spec_decode_num_drafts(_total)?",
    "accepted": r"spec_decode_num_accepted_tokens(_total)?",
}


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
