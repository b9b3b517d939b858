"""A star over an address that other hosts can reach: keys by commands."""

import signal
import socket
from pathlib import Path

import pytest

from tests.helpers.processes import ended, specfleet

pytest.importorskip("zmq")


@pytest.mark.slow
def test_a_star_with_keys_logs_admitted_and_refused_clients(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for name in ("drafter", "target-1", "mallory"):
        status, out, _ = ended(specfleet("keys", name, "-o", tmp_path / "keys"))
        assert (status, out.count("\n")) == (0, 2)
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "target-1.public").write_bytes((tmp_path / "keys" / "target-1.public").read_bytes())
    few = ["--set", "workload.requests=2", "--set", "verifiers.count=1"]
    keys = tmp_path / "keys"
    here = socket.gethostbyname(socket.gethostname())
    own = ["--key", keys / "drafter.secret", "--allowed", allowed]
    drafter = specfleet("drafter", "star", "--port", "0", *own, *few)
    assert drafter.stderr is not None
    said = drafter.stderr.readline()
    assert "for clients with one of 1 keys in" in said
    port = said.split()[-1]
    stranger, target = (
        specfleet("verifier", "star", "--connect", f"{here}:{port}", *few,
                  "--key", keys / f"{name}.secret", "--server-key", keys / "drafter.public")
        for name in ("mallory", "target-1")
    )  # fmt: skip
    status, _, err = ended(target)
    assert (status, err) == (0, f"target 1: drafts come from {here}:{port}\ntarget 1: done\n")
    assert stranger.stderr is not None
    assert "refuses the key mallory" in stranger.stderr.readline()
    for process in (stranger, drafter):
        process.send_signal(signal.SIGTERM)
    ended(stranger)
    _, _, err = ended(drafter)
    for line in ("drafter: refused ", ", key target-1) joins", "connections of unknown keys"):
        assert line in err
