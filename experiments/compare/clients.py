"""A simulated run beside the file of a client that timed a server: AIPerf, GuideLLM, inference-perf, benchmarks."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from specfleet.calibration.readers.bench import read_bench
from specfleet.calibration.readers.entries import read_entries, table_of
from specfleet.calibration.readers.load import Load
from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.reports import read_guidellm, read_inference_perf
from specfleet.calibration.readers.responses import read_aiperf
from specfleet.calibration.readers.signatures import name_foreign, signature_of
from specfleet.experiments.compare.compare import Comparison, Reruns, compare_metrics, summarise
from specfleet.experiments.compare.loads import load_rows, times_in
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import Run

REPORTS = {"guidellm": read_guidellm, "inference-perf": read_inference_perf}
CLIENTS = ("vllm-bench", "sglang-bench", "aiperf")
SUFFIXES = (".json", ".jsonl")  # of clients' files; runs are Parquet
WORKLOAD = ("prompt, tokens", "answer, tokens", "in flight")  # rows of a load
UNLIKE = 0.05  # relative difference of these that is named


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
    if found is not None and found.kind in REPORTS:
        return REPORTS[found.kind]([path])
    if found is not None and found.kind not in CLIENTS:
        name_foreign("client", [path])
    origin, first = next(iter(read_entries([path])), (str(path), None))
    return read_bench([path], depth) if "completed" in table_of(first, origin) else read_aiperf([path])


def metrics_of(load: Load) -> dict[str, Metric]:
    """Return the metrics of a run that a client's file has, without intervals."""
    metrics = {} if load.tokens_per_s is None else {"throughput": Metric(load.tokens_per_s, unit="tokens/s")}
    if load.tokens_per_round > 1:
        metrics["acceptance_length"] = Metric(load.tokens_per_round - 1, unit="tokens/round")
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
