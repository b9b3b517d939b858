"""Hosts on one machine: a network namespace each, joined by a bridge. They need only a user namespace."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_SLEEP = ["sleep", "900"]  # keeps a namespace; it is ended with the test


class NotPermittedError(Exception):
    """This machine does not allow such namespaces; the message has the failed command and its error."""


class Hosts:
    """Hosts 10.77.0.1, 10.77.0.2, ... in namespaces. The caller ends its own processes in them."""

    def __init__(self, count: int) -> None:
        self.keepers: list[subprocess.Popen[str]] = []
        try:
            self._keep("unshare", "--user", "--map-root-user", "--net")
            middle = self._inside(0)
            self._do(*middle, "ip", "link", "add", "middle", "type", "bridge")
            self._do(*middle, "ip", "link", "set", "middle", "up")
            for number in range(1, count + 1):
                self._keep(*middle, "unshare", "--net")
                pid, host = str(self.keepers[number].pid), self._inside(number)
                self._do(*middle, "ip", "link", "add", f"to{number}", "type", "veth",
                         "peer", "name", "eth", "netns", pid)  # fmt: skip
                self._do(*middle, "ip", "link", "set", f"to{number}", "master", "middle", "up")
                self._do(*host, "ip", "addr", "add", f"{self.address(number)}/24", "dev", "eth")
                self._do(*host, "ip", "link", "set", "eth", "up")
                self._do(*host, "ip", "link", "set", "lo", "up")
        except (OSError, NotPermittedError) as error:
            self.close()
            raise NotPermittedError(str(error)) from None

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self.close()

    @staticmethod
    def address(number: int) -> str:
        """Address of host `number`, from 1."""
        return f"10.77.0.{number}"

    def on(self, number: int) -> list[str]:
        """The prefix of a command that runs on host `number`."""
        return self._inside(number)

    def close(self) -> None:
        """End the keepers of the namespaces; the kernel removes them with their last process."""
        for keeper in reversed(self.keepers):
            keeper.kill()
            keeper.communicate()

    def _keep(self, *command: str) -> None:
        """Start a process in a namespace of its own, and wait until it exists."""
        before = _namespace(self.keepers[0].pid if self.keepers else "self")
        keeper = subprocess.Popen([*command, *_SLEEP], stderr=subprocess.PIPE, text=True)
        self.keepers.append(keeper)
        until_s = time.monotonic() + 30.0
        while keeper.poll() is None and time.monotonic() < until_s:
            with suppress(OSError):
                is_sleep = Path(f"/proc/{keeper.pid}/comm").read_text().strip() == "sleep"
                if is_sleep and _namespace(keeper.pid) != before:
                    return
            time.sleep(0.01)
        keeper.kill()
        raise NotPermittedError(f"{' '.join(command)}: {keeper.communicate()[1].strip() or 'no namespace came'}")

    def _inside(self, number: int) -> list[str]:
        keeper = str(self.keepers[number].pid)
        return ["nsenter", "--target", keeper, "--user", "--net", "--preserve-credentials"]

    def _do(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotPermittedError(f"{' '.join(command)}: {done.stderr.strip()}")


def _namespace(process: int | str) -> str:
    return str(Path(f"/proc/{process}/ns/net").readlink())
