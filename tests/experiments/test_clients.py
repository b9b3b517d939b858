"""A simulated run is held against the file of a client that timed a server."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

import specfleet
from specfleet.fleet.errors import InputError
from tests.helpers.loads import Served, aiperf_text, bench_text, scenario_of_server, served_in, sglang_bench_text

TEXTS: dict[str, Callable[[Sequence[Served]], str]] = {
    "vllm bench serve": bench_text,
    "SGLang": sglang_bench_text,
    "AIPerf": lambda each: aiperf_text([each[0], *each]),
}


@pytest.mark.parametrize("client", TEXTS)
def test_a_server_that_is_simulated_exactly_has_no_error(tmp_path: Path, client: str) -> None:
    result = specfleet.simulate(scenario_of_server(requests=400))
    file = tmp_path / "client.json"
    file.write_text(TEXTS[client](served_in(result.run)))
    comparison = specfleet.compare(result, file)
    assert comparison.differences == []
    rows = {row.quantity: row for row in comparison.rows}
    assert rows["tpot_s"].error == pytest.approx(0, abs=0.03)  # the first requests are not in a run's window
    assert rows["ttft_s"].error == pytest.approx(0, abs=0.06)
    assert rows["throughput"].error == pytest.approx(0, abs=0.05)
    assert rows["acceptance_length"].error == pytest.approx(0, abs=0.03)
    assert rows["tpot_p90_s"].engine > rows["tpot_p50_s"].engine > 0


def test_another_load_is_named(tmp_path: Path) -> None:
    file = tmp_path / "client.json"
    eight = served_in(specfleet.simulate(scenario_of_server(streams=8)).run)
    file.write_text(bench_text(eight, max_concurrency=8))
    apart = specfleet.compare(specfleet.simulate(scenario_of_server(prompt_tokens=100)), file).differences
    assert [line.partition(":")[0] for line in apart] == ["prompt, tokens", "in flight"]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    result, file = specfleet.simulate(scenario_of_server(requests=20)), tmp_path / "client.json"
    file.write_text(bench_text(served_in(result.run)))
    with pytest.raises(InputError, match="a client's file has no reruns"):
        specfleet.compare(result, file, reruns=[result])
    header = msgspec.structs.replace(result.run.header, world="engine")
    measured = dataclasses.replace(result, run=msgspec.structs.replace(result.run, header=header))
    with pytest.raises(InputError, match="give that one first"):
        specfleet.compare(measured, file)
    for text, said in (
        ("[]", "needs an object"),
        ('{"completed": 0}', "has neither acceptance nor times"),
        ('{"metadata": {}}', "holds no request"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=said):
            specfleet.compare(result, file)
