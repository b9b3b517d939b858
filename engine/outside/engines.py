"""Engines of others that are installed here, each in an environment of its own, and runs on them."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from specfleet.engine.node.build import with_positions
from specfleet.engine.outside.answers import answers_of, run_of
from specfleet.engine.outside.job import Facts, Served, Settings, job_of, settings_of
from specfleet.engine.outside.steps import log_of, with_cache
from specfleet.fleet.errors import InputError, NodeDiedError
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario

FOLDER = "SPECFLEET_ENGINES"  # environment variable: the folder of all environments
LINES_OF_ERROR = 3
DRIVER = Path(__file__).with_name("drive_vllm.py")
MAX_DRIVERS = 4  # processes that are kept: one of vLLM takes 1.9 GB for the demo pair
ENDS_S = 10.0  # that an engine has to end by itself

T = TypeVar("T")


def folder_of_engines() -> Path:
    """Return the folder of all environments."""
    return Path(os.environ.get(FOLDER) or Path.home() / ".cache" / "specfleet" / "engines")


def environment_of(engine: str) -> Path:
    """Return the environment of an engine; InputError if it is not installed."""
    folder = folder_of_engines() / engine
    if not (folder / "bin" / "python").exists():
        raise InputError(
            f"engine {engine}: not installed in {folder}; `python -m venv {folder}` and its pip do it, in a checkout "
            f"`make outside ENGINE={engine}`, or set {FOLDER} to the folder that has it"
        )
    return folder


def packages_of(engine: str) -> str:
    """Return the packages of an engine's environment, with their versions."""
    return " ".join(sorted(file.stem for file in environment_of(engine).glob("lib/*/site-packages/*.dist-info")))


class Driver:
    """A started engine in a process of its own. `facts`: what it says of itself."""

    def __init__(self, environment: Path, program: Path, settings: Settings, facts: type[Facts] = Facts) -> None:
        preload = [str(path) for path in (environment / "lib").glob("libiomp5.so")]  # vLLM's builds for the cpu need it
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        self.process = subprocess.Popen(  # noqa: S603  (a program of our own)
            [environment / "bin" / "python", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=os.environ | {"LD_PRELOAD": ":".join(preload)},
        )
        try:
            self.facts = self.ask(settings, facts)
        except BaseException:
            self.close()
            raise

    def ask(self, content: msgspec.Struct, answer: type[T]) -> T:
        """Send a line and return the answer; NodeDiedError if the process has ended instead."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(msgspec.json.encode(content) + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its last words follow
        if line := self.process.stdout.readline():
            return msgspec.json.decode(line, type=answer, strict=False)
        raise NodeDiedError(f"the engine's process ended with {self.process.wait()}: {self._last_words()}")

    def close(self) -> None:
        """End the process: at the end of its input, or by force."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()

    def _last_words(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return " | ".join(lines[-LINES_OF_ERROR:])


class OutsideEngine(contextlib.AbstractContextManager["OutsideEngine"]):
    """Runs scenarios on an engine; its last processes are kept until the end of the `with` block, for equal settings.

    - `report`: is called with a line before an engine starts, which takes up to a minute.
    """

    def __init__(self, engine: str, report: Callable[[str], None] = lambda _line: None) -> None:
        self.engine = engine
        self.report = report
        self.drivers: dict[bytes, Driver] = {}

    def __exit__(self, *_details: object) -> None:
        for driver in self.drivers.values():
            driver.close()

    def run(self, scenario: Scenario) -> Run:
        """Run a scenario and return its records.

        Raises InputError for a scenario that the engine cannot run, NodeDiedError if its process fails.
        """
        fleet = msgspec.structs.replace(with_positions(resolve(scenario)), request_s=0.0)  # its records have that time
        settings = settings_of(fleet, scenario)
        key = msgspec.json.encode(settings)
        driver = self.drivers.pop(key, None)
        if driver is None:
            if len(self.drivers) == MAX_DRIVERS:
                self.drivers.pop(next(iter(self.drivers))).close()  # unused for the longest time
            self.report(f"starting {self.engine}")
            driver = self.started(settings)
        self.drivers[key] = driver
        run = self.recorded(scenario, fleet, driver)
        return msgspec.structs.replace(
            run, header=msgspec.structs.replace(run.header, engine=f"{self.engine} {driver.facts.version}")
        )

    def started(self, settings: Settings) -> Driver:
        """Start a process of the engine."""
        return Driver(environment_of(self.engine), DRIVER, settings)

    def recorded(self, scenario: Scenario, fleet: Fleet, driver: Driver) -> Run:
        """Run a scenario on a started engine; it keeps its answers alone where its steps are not the station's."""
        fleet = with_cache(fleet, driver.facts)
        served = driver.ask(job_of(fleet), Served)
        try:
            return make_run(scenario, "engine", log_of(fleet, served), fleet)
        except InputError as error:  # of another version, say; what was measured is not lost
            self.report(f"note: {error}; the run keeps its answers alone")
            return run_of(scenario, fleet, answers_of(served), "")
