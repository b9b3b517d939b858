"""A star over an address that other hosts can reach: keys by commands, and what is said without them."""

import signal
import socket
import sys
from pathlib import Path

import pytest

from specfleet import cli
from tests.helpers.processes import ended, specfleet

pytest.importorskip("zmq")
REFUSED = [
    (["drafter", "star", "--host", "0.0.0.0"], "0.0.0.0: other hosts can reach that address"),  # noqa: S104
    (["verifier", "star", "--connect", "192.0.2.7:5555"], "192.0.2.7: is another host, and without keys anybody"),
    (["drafter", "star", "--key", "a.secret"], "--key and --allowed belong together"),
    (["verifier", "star", "--server-key", "a.public"], "--key and --server-key belong together"),
    (["verifier", "star", "--key", "a.secret", "--server-key", "a.public"], "a.public: cannot be read (No such file"),
    (["router", "m-for-n", "--drafters", "192.0.2.7:5555,b:1"], "192.0.2.7: is another host, and without keys anybody"),
    (
        ["router", "m-for-n", "--drafters", "a:1", "--key", "a.secret"],
        "--key, --allowed and --server-key belong together",
    ),
    (
        ["verifier", "star", "--key", "a.secret", "--server-key", "a.public,b.public"],
        "--server-key a.public,b.public: 2 keys for 1 addresses; one for all, or each",
    ),
    (["keys", "a/b"], "key 'a/b': allowed are 1 to 64 letters"),
]


@pytest.mark.parametrize(("words", "line"), REFUSED)
def test_what_keys_lack_is_said_in_one_line(
    words: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", ["specfleet", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


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
