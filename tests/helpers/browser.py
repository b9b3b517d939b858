"""A real browser for tests, driven by its own protocol over two pipes, without a library.

It is a Chromium on the path, or the command in SPECFLEET_BROWSER; `find` returns None without one.
"""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
OPTIONS = (
    "--headless=shell", "--no-sandbox", "--no-zygote", "--single-process", "--in-process-gpu", "--use-gl=angle",
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-domain-reliability", "--disable-features=IsolateOrigins,site-per-process",
    "--remote-debugging-pipe", "about:blank",
)  # fmt: skip


def find() -> str | None:
    """Return the command of a browser; None without one."""
    named = os.environ.get("SPECFLEET_BROWSER")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser: `call` sends a command of the DevTools protocol and returns its answer."""

    def __init__(self, write: int, read: int) -> None:
        self.write, self.read, self.rest, self.number = write, read, b"", 0
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        pages = self.call("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in pages if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and return its answer; events in between are kept in `events`."""
        self.number += 1
        sent = {"id": self.number, "method": method, "params": params}
        os.write(self.write, json.dumps(sent | ({"sessionId": self.session} if self.session else {})).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self.number:
                assert "error" not in message, f"{method}: {message}"
                return message["result"]
            self.events.append(message)

    def open(self, address: str) -> None:
        """Load an address."""
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, script: str) -> Any:
        """Return the value of a script in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move, press, release or turn the mouse at a place of the window, in pixels."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def requests(self) -> list[str]:
        """Return the requested addresses of the page."""
        requested = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in requested]

    def errors(self) -> list[str]:
        """Return the errors of the page's scripts."""
        return [str(event["params"]) for event in self.events if event.get("method") == "Runtime.exceptionThrown"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            part = os.read(self.read, 1 << 16)
            assert part, "the browser has ended"
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextlib.contextmanager
def opened(command: str, folder: Path) -> Iterator[Browser]:
    """Start a browser with its own files in a folder, and end it."""
    their_read, write = os.pipe()
    read, their_write = os.pipe()

    def take_pipes() -> None:  # the browser reads from 3 and writes to 4
        one, other = os.dup(their_read), os.dup(their_write)
        os.dup2(one, 3)
        os.dup2(other, 4)

    process = subprocess.Popen(
        [command, *OPTIONS, f"--user-data-dir={folder}"],
        preexec_fn=take_pipes, close_fds=False,  # noqa: PLW1509  (it only moves two numbers)
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(their_read)
    os.close(their_write)
    try:
        yield Browser(write, read)
    finally:
        process.kill()
        process.wait()
        os.close(write)
        os.close(read)
