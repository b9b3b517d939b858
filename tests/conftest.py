"""What all tests share: one thread of torch, errors of one line, and the same examples of hypothesis in every run."""

import math
import sys
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.helpers.cli import Say, run_cli

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Hypothesis would also try the constants of all modules that happen to be imported by then: other examples in every
# worker, and in every choice of tests.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants  # none


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run `specfleet` in this process: its status, and what it printed."""
    return partial(run_cli, monkeypatch, capsys)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Threads of torch would idle in circles between such small steps, and fight over the cores with other workers."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def one_path() -> None:
    """What is simulated by itself goes by SimPy, however much a worker has simulated before."""
    from specfleet.sim.fast import choice

    choice.WORTH_LOADING_TOKENS = math.inf


@pytest.fixture(scope="session", autouse=True)
def lines_of_errors() -> Iterator[None]:
    """The message of every error that users can cause is one line, in whatever test it is made."""
    from specfleet.fleet.errors import InputError

    def checked(error: InputError, *arguments: object) -> None:
        assert "\n" not in "".join(map(str, arguments)), arguments
        Exception.__init__(error, *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(InputError, "__init__", checked)
        yield
