"""A headless Chromium, driven over a pipe in its debugger's protocol: no port, no library."""

import fcntl
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
COMMAND = os.environ.get("SPECFLEET_BROWSER") or next(filter(shutil.which, NAMES), None)
NO_BROWSER = "no Chromium; SPECFLEET_BROWSER may name one"
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
KEYS = {"ArrowRight": 39, "Enter": 13, "Tab": 9}


class Tab:
    """A page in a browser, over a pipe to it and one from it."""

    def __init__(self, writer: BinaryIO, reader: BinaryIO) -> None:
        self._writer, self._reader, self._numbers, self._session = writer, reader, itertools.count(1), {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}

    def call(self, method: str, **params: Any) -> Any:
        """Send a command, and return its result."""
        number = next(self._numbers)
        self._writer.write(json.dumps({"id": number, "method": method, "params": params, **self._session}).encode())
        self._writer.write(b"\0")
        self._writer.flush()
        while (answer := json.loads(b"".join(iter(lambda: self._reader.read(1), b"\0")))).get("id") != number:
            pass  # an event
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, address: str, width: int = 1200, height: int = 900) -> None:
        """Load a page in a window of that size, in pixels of the page."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=address)

    def value(self, script: str) -> Any:
        """Return what a script, or its promise, comes to."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until a script's value is true; fail after half a minute."""
        look = f"const look = () => ({condition}) ? done(true) : setTimeout(look, 20)"
        script = f"new Promise((done) => {{ {look}; look(); setTimeout(() => done(false), 30000); }})"
        assert self.value(script), condition

    def press(self, key: str) -> None:
        """Press and release a key by its name."""
        more = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **more)


@contextmanager
def new_tab(folder: Path) -> Iterator[Tab]:
    """Start a browser that keeps its files in a folder; yield its tab, and end it."""
    assert COMMAND is not None
    (to_it, writer), (reader, from_it) = os.pipe(), os.pipe()

    def connect() -> None:  # it takes commands at 3, and answers at 4
        copies = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (to_it, from_it)]
        for place, one in zip((3, 4), copies, strict=True):
            os.dup2(one, place)

    command, quiet = [COMMAND, *OPTIONS, f"--user-data-dir={folder}"], {"stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, close_fds=False, preexec_fn=connect, **quiet)  # noqa: PLW1509
    for one in (to_it, from_it):
        os.close(one)
    with os.fdopen(writer, "wb") as commands, os.fdopen(reader, "rb") as answers:
        try:
            yield Tab(commands, answers)
        finally:
            process.terminate()
            process.wait()
