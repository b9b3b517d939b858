"""Simulated load beside what a server's records or its client say of it: rows of an import, and of a client's file.

Clients' files are those of AIPerf, GuideLLM, inference-perf, `vllm bench serve` and SGLang's benchmark.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec
import pandas as pd
from msgspec.structs import replace

from specfleet.calibration.readers.entries import read_entries, table_of
from specfleet.calibration.readers.importing import READERS, Imported
from specfleet.calibration.readers.load import Load
from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.signatures import name_foreign, signature_of
from specfleet.experiments.compare.compare import Comparison, Reruns, compare_metrics, summarise
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.metrics.glossary import percentile_name
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.window import Metric, with_percentiles
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.workload import mean_lengths
from specfleet.fleet.shown import Shown
from specfleet.sim.run import observe

MAX_TOKENS = 3 * 10**6  # of answers, in a simulation that an import starts: some ten seconds
CLIENTS = ("vllm-bench", "sglang-bench", "aiperf", "guidellm", "inference-perf")
SUFFIXES = (".json", ".jsonl")  # of clients' files; runs are Parquet
WORKLOAD = ("prompt, tokens", "answer, tokens", "in flight")  # rows of a load
UNLIKE = 0.05  # relative difference of these that is named


class LoadRow(msgspec.Struct, frozen=True):
    """A quantity as it was read and as it was simulated; `kind`: whether the scenario took it as input.

    `simulated` is None of what the simulation does not predict.
    """

    quantity: str
    observed: float
    simulated: float | None
    kind: Literal["input", "predicted", "not predicted"]

    @property
    def error(self) -> float | None:
        """The simulated value over the observed one, less 1; None where either is missing."""
        return self.simulated / self.observed - 1 if self.observed and self.simulated is not None else None


class LoadComparison(Shown, msgspec.Struct, frozen=True):
    """The rows, where the step times of the simulation come from, and why it predicts nothing; empty if it does."""

    times: str
    rows: tuple[LoadRow, ...]
    unpredictable: str = ""

    def line(self) -> str:
        """Say the largest error of what was predicted."""
        if self.unpredictable:
            return f"not predicted: {self.unpredictable}"
        predicted = [row for row in self.rows if row.kind == "predicted"]
        errors = {row.quantity: abs(row.error) for row in predicted if row.error is not None}
        if not errors:
            return "nothing was predicted"
        worst = max(errors, key=errors.__getitem__)
        return f"predicted: {fmean(errors.values()):.1%} off on average, {errors[worst]:.1%} at worst ({worst})"

    def frame(self) -> pd.DataFrame:
        """Return the rows as a frame: quantity, observed, simulated, error, kind."""
        rows = [(row.quantity, row.observed, row.simulated, row.error, row.kind) for row in self.rows]
        return pd.DataFrame(rows, columns=["quantity", "observed", "simulated", "error", "kind"])


def compare_load(imported: Imported) -> LoadComparison | None:
    """Simulate an imported scenario and compare it with the load that it was made of.

    Returns None without a load or without step times, and for a scenario of more than MAX_TOKENS. Errors are those of
    `simulate`.

    >>> import specfleet, tempfile
    >>> from pathlib import Path
    >>> line = (
    ...     "Engine 000: Avg prompt throughput: 800.0 tokens/s, Avg generation throughput: 400.0 tokens/s, "
    ...     "Running: 4 reqs, Waiting: 0 reqs"
    ... )
    >>> counts = "\\n".join([line] * 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     answer = Path(folder, "server.log")
    ...     _ = answer.write_text(counts)
    ...     comparison = specfleet.compare_load(specfleet.import_record("vllm-log", answer, f"{folder}/mine.toml"))
    >>> [(row.quantity, row.kind) for row in comparison.rows]
    [('time of a round, ms', 'input'), ('in flight', 'input'), ('tokens/s', 'predicted')]
    """
    load, workload = imported.load, imported.scenario.workload
    if load is None or not imported.times:
        return None
    prompt, answer = mean_lengths(workload)
    if workload.requests * answer > MAX_TOKENS:
        return None
    simulated = with_percentiles(measure(observe(imported.scenario)))
    metrics = {name: float(metric.value) for name, metric in simulated.items()} | {"prompt": prompt, "answer": answer}
    rows = [row for row in load_rows(load, metrics, imported.inputs) if not math.isnan(row.simulated or 0.0)]
    if load.unpredictable:
        rows = [row if row.kind == "input" else replace(row, simulated=None, kind="not predicted") for row in rows]
    return LoadComparison(imported.times, tuple(rows), load.unpredictable)


def load_rows(load: Load, metrics: Mapping[str, float], inputs: Sequence[str] = ()) -> Iterator[LoadRow]:
    """Yield a load beside the metrics of its simulation; `prompt` and `answer`, in tokens, are among these.

    - `inputs`: names of what the simulation took as input.
    """

    def simulated(name: str) -> float:
        return metrics.get(name, math.nan)

    carried_per_s, length = simulated("carried_requests_per_s"), metrics.get("mean_acceptance_length", 1.0)
    means: dict[str, tuple[float | None, float]] = {
        "prompt, tokens": (load.prompt_tokens.mean if load.prompt_tokens else None, simulated("prompt")),
        "answer, tokens": (load.new_tokens.mean if load.new_tokens else None, simulated("answer")),
        "tokens a round": (load.tokens_per_round if load.tokens_per_round > 1 else None, length),
        "time of a round, ms": (load.round_s and 1e3 * load.round_s, 1e3 * simulated("tpot_s") * length),
        "prefix hits, share": (load.cached_share or None, simulated("prefix_hit_share")),
        "requests/s": (load.requests_per_s, carried_per_s),
        "in flight": (load.in_flight, carried_per_s * simulated("latency_s")),
        "tokens/s": (load.tokens_per_s, simulated("throughput")),
    }
    for name, (observed, value) in means.items():
        if observed is not None:
            yield LoadRow(name, observed, value, "input" if name in inputs else "predicted")
    for title, metric, time_s in times_in(load):
        yield LoadRow(title, 1e3 * time_s, 1e3 * simulated(metric), "predicted")


def times_in(load: Load) -> Iterator[tuple[str, str, float]]:
    """Yield the times of a load's requests in seconds: what a table calls each, the metric that it is, and the time."""
    for name, metric, times_s in (("TTFT", "ttft_s", load.ttft_s), ("TPOT", "tpot_s", load.tpot_s)):
        for level, time_s in times_s.levels(1.0).items() if times_s else ():
            yield f"{name}, ms, {level}", percentile_name(metric, level.lower()), time_s


def compare_client(simulated: Run, path: Path) -> Comparison:
    """Compare a simulated run with the requests that a client timed; errors refer to the client's numbers.

    Raises InputError for a file that has no times of requests, and for a run that was not simulated.
    """
    if simulated.header.world != "sim":
        raise InputError(f"{path}: a client's file is compared with a simulated run; give that one first")
    metrics, scenario = measure(simulated), simulated.header.scenario
    load = read_client(path, scenario.drafters.depth).load
    if load is None:
        raise InputError(f"{path}: has no times of requests; write it with the details of each request")
    case = {"scenario": scenario.name, "N": scenario.verifiers.count}
    rows = compare_metrics(case, metrics, Reruns([metrics_of(load)]))
    return summarise(rows, simulated.header.profile_digest, list(workloads_apart(simulated, metrics, load)))


def read_client(path: Path, depth: int) -> Recording:
    """Read a client's file, whichever it is; `depth`: of the drafts, where it lacks them."""
    found = signature_of(path)
    if found is not None and found.kind not in CLIENTS:
        name_foreign("client", [path])
    origin, first = next(iter(read_entries([path])), (str(path), None))
    kind = found.kind if found else "sglang-bench" if "completed" in table_of(first, origin) else "aiperf"
    return READERS[kind].read([path], **({"depth": depth} if "depth" in READERS[kind].options else {}))


def metrics_of(load: Load) -> dict[str, Metric]:
    """Return the metrics of a run that a client's file has, without intervals."""
    metrics = {} if load.tokens_per_s is None else {"throughput": Metric(load.tokens_per_s, unit="tokens/s")}
    if load.tokens_per_round > 1:
        metrics["acceptance_length"] = Metric(load.tokens_per_round - 1, unit="tokens/verification")
    return metrics | {name: Metric(time_s, unit="s") for _, name, time_s in times_in(load)}


def workloads_apart(simulated: Run, metrics: Mapping[str, Metric], load: Load) -> Iterator[str]:
    """Yield what differs between the requests that were simulated and those of the client."""
    if load.unpredictable:
        yield f"not predicted: {load.unpredictable}"
    requests = findings_of(simulated).requests
    means = {name: float(metric.value) for name, metric in metrics.items()}
    means |= {"prompt": float(requests.prompt_tokens.mean()), "answer": float(requests.tokens.mean())}
    for row in load_rows(load, means):
        if row.quantity in WORKLOAD and row.error is not None and abs(row.error) > UNLIKE:
            yield f"{row.quantity}: {row.simulated:.4g} on average in the simulation, {row.observed:.4g} in the file"
