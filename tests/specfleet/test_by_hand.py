"""Several drafters for several targets, each node started by its command with keys of its own, in the wrong order."""

import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("zmq")

from engine.net.keys import new_pair
from fleet.records.replay import replay
from fleet.records.run import read_run
from tests.helpers.marks import slow
from tests.helpers.namespaces import Hosts, NotPermittedError
from tests.helpers.pairs import pair_scenario, write_pair
from tests.helpers.plain import plain_outputs
from tests.helpers.processes import ended, start

Place = tuple[list[str], Callable[[int], list[str]]]  # addresses of hosts, and what starts a command on one of them
COUNT = 4  # of hosts: a drafter each on the first two, the router and a target each on the others
ALLOWED = {"drafter-1": ["router", "target-1", "target-2"], "drafter-2": ["router", "target-1", "target-2"],
           "router": ["target-1", "target-2"]}  # fmt: skip


@contextmanager
def loopback() -> Iterator[Place]:
    """Four addresses of this host alone, with free ports."""
    addresses = []
    for number in range(1, COUNT + 1):
        with socket.socket() as free:
            free.bind((f"127.0.0.{number + 1}", 0))
            addresses.append(f"127.0.0.{number + 1}:{free.getsockname()[1]}")
    yield addresses, lambda _number: []


@contextmanager
def namespaces() -> Iterator[Place]:
    """Four hosts that reach each other over a network."""
    try:
        hosts = Hosts(COUNT)
    except NotPermittedError as error:
        pytest.skip(f"this machine gives no network namespaces: {error}")
    with hosts:
        yield [f"{hosts.address(number)}:5555" for number in range(1, COUNT + 1)], hosts.on


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained pair with its prompts; keys of all nodes, and the clients that each admits."""
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    for name in ("drafter-1", "drafter-2", "router", "target-1", "target-2"):
        new_pair(name, folder / "keys")
    for name, others in ALLOWED.items():
        (folder / f"allowed-{name}").mkdir()
        for other in others:
            public = (folder / "keys" / f"{other}.public").read_bytes()
            (folder / f"allowed-{name}" / f"{other}.public").write_bytes(public)
    return folder


def written(folder: Path, route: str) -> Path:
    file = folder / f"{route}.toml"
    file.write_text(
        f'''
        name = "tiny"
        precision = "float64"
        drafters = {{model = "{folder / "kin"}", count = 2, depth = 4, route = "{route}"}}
        verifiers = {{model = "{folder / "target"}", count = 2}}
        workload = {{prompts = "{folder / "prompts.jsonl"}", prompt_tokens = 16, new_tokens = 20, requests = 6}}
        '''
    )
    return file


@pytest.mark.parametrize(
    ("route", "place"),
    [slow("round-robin", loopback), slow("affinity", namespaces), slow("round-robin", namespaces)],
)
def test_nodes_by_hand_decode_as_plain_decoding(
    folder: Path,
    tmp_path: Path,
    route: str,
    place: Callable[[], AbstractContextManager[Place]],
) -> None:
    scenario, keys = written(folder, route), folder / "keys"
    with place() as (addresses, on):
        drafters = ",".join(addresses[:2])

        def node(name: str, host: int, command: str, *words: str | Path) -> subprocess.Popen[str]:
            own = ["--key", keys / f"{name}.secret", "-o", tmp_path / name]
            if name in ALLOWED:
                at, _, port = addresses[host - 1].rpartition(":")
                own += ["--allowed", folder / f"allowed-{name}", "--host", at, "--port", port]
            return start("-m", "tests.helpers.printed_texts", command, scenario, *words, *own, before=on(host))

        both = f"{keys / 'drafter-1.public'},{keys / 'drafter-2.public'}"
        server = (drafters, both) if route == "affinity" else (addresses[2], keys / "router.public")
        targets = [
            node(f"target-{number}", number + 2, "verifier", "--target", str(number),
                 "--connect", server[0], "--server-key", server[1])
            for number in (1, 2)
        ]  # fmt: skip
        awaited = f"drafters at {drafters.replace(',', ', ')}"
        for number, target in enumerate(targets, 1):
            assert target.stderr is not None
            own = f"a drafter at {addresses[number - 1]}"  # of streams that stay with their drafter
            waits_for = own if route == "affinity" else f"the router at {addresses[2]}"
            assert target.stderr.readline() == f"target {number}: waits for {waits_for}\n"
        servers = []
        if route != "affinity":
            servers.append(node("router", 3, "router", "--drafters", drafters, "--server-key", both))
            assert servers[0].stderr is not None
            assert "router: routes to 2 drafters, for clients with one of 2 keys" in servers[0].stderr.readline()
            assert servers[0].stderr.readline() == f"router: waits for {awaited}\n"
        servers += [node(f"drafter-{number}", number, "drafter", "--number", str(number)) for number in (2, 1)]
        outputs: dict[int, list[int]] = {}
        for target in targets:
            status, printed, err = ended(target)
            assert status == 0, err
            outputs |= {int(request): text for request, text in json.loads(printed).items()}
        for server in servers:
            server.send_signal(signal.SIGTERM)
            assert ended(server)[0] == 128 + signal.SIGTERM
    plain = pair_scenario(folder, drafters={"count": 2})
    assert outputs == plain_outputs(plain)
    stations = set()
    for record in sorted(path for path in tmp_path.iterdir() if not path.name.startswith("test")):
        run = read_run(record)
        frame = run.frame()
        assert replay(run) == []
        assert not (frame.event == "refusal").any()
        stations |= set(frame.station)
    routed = {"router"} if route != "affinity" else set()
    assert stations == {"drafter.1", "drafter.2", "verifier.1", "verifier.2"} | routed
