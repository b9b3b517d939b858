"""From the answers of a server to a run: requests and their tokens are known, steps and drafts are not."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import msgspec

from specfleet.engine.node.build import with_positions
from specfleet.engine.outside.client import Answer, Answers, ask_all
from specfleet.engine.outside.job import Served, job_of
from specfleet.fleet.records.recorder import Log
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.records.schema import Row
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import Request, streams_of

TOGETHER_S = 3e-4  # between tokens of one round, where the server does not count its rounds; steps take longer
MAX_TOKENS = 10**9  # tokens of a round, without a limit


def run_on_server(scenario: Scenario, url: str, report: Callable[[str], None] = lambda _line: None) -> Run:
    """Send a scenario's requests to an OpenAI-compatible server, and return the run.

    The workload is the scenario's; its other keys describe the server, and are not checked there. `report` is called
    with lines on progress, acceptance, and counts that do not add up. Raises InputError as `ask_all`.
    """
    fleet = with_positions(resolve(scenario))
    job = job_of(fleet)
    answers = ask_all(url, job, report)
    for line in remarks(answers, {request.number: request.new_tokens for stream in job.streams for request in stream}):
        report(line)
    return run_of(scenario, fleet, answers, f"server {url}")


def run_of(scenario: Scenario, fleet: Fleet, answers: Answers, engine: str) -> Run:
    """Return the run of a scenario that an engine gave those answers to."""
    most = fleet.drafters.depth + 1 if fleet.drafters.count else MAX_TOKENS
    log = log_of(streams_of(fleet), answers, between_rounds_s(answers, fleet), most)
    run = make_run(scenario, "engine", log, fleet)
    return msgspec.structs.replace(run, header=msgspec.structs.replace(run.header, engine=engine, steps=False))


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
    server counts tokens beyond the end of an answer, as vLLM does; with prompt lookup no count is right.
    """
    gaps_s = sorted(after[0] - before[0] for answer in answers.answers for before, after in pairwise(answer.chunks))
    drafts = answers.counted.get("rounds", 0) if fleet.drafters.kind != "lookup" else 0
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
