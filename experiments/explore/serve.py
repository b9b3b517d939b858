"""The page and its answers over HTTP on loopback: for that page and programs of this host, not for other pages."""

import base64
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from threading import Thread
from typing import Any

import msgspec

from experiments.explore.answers import BusyError, Explorer, Sliders
from fleet.errors import InputError
from fleet.inputs.strict import convert
from fleet.inputs.text import parse_json, shortened
from fleet.scenario.scenario import Scenario

TEMPLATE = Path(__file__).with_name("page.html")
HOST = "127.0.0.1"
LONGEST_BYTES = 4096  # of a question
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def page_of(explorer: Explorer) -> tuple[bytes, str]:
    """Return the page of a scenario, and the policy under which a browser shows it: its own script, style and host."""
    name, basis = explorer.scenario.name, explorer.fleet.basis
    arrivals_per_s = 2 * explorer.analytic(explorer.start).curve[-1] / explorer.answer_tokens
    start = {"scenario": name, "basis": basis, "sliders": explorer.start, "mostArrivals": arrivals_per_s}
    text = TEMPLATE.read_text(encoding="utf-8").replace("START", escape(msgspec.json.encode(start).decode()))
    # A hash allows what stands in the file, and nothing that could slip into the page.
    allowed = {f"{tag}-src": _hash(text, tag) for tag in ("script", "style")}
    policy = {**allowed, "connect-src": "'self'", "img-src": "data:"}
    return text.encode(), "; ".join([NOTHING, *(f"{what} {source}" for what, source in policy.items())])


def _hash(text: str, tag: str) -> str:
    (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


class Server(ThreadingTCPServer):
    """The server of one page, whose threads do not keep the process: browsers open connections and say nothing."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, explorer: Explorer, port: int) -> None:
        self.page = page_of(explorer)
        self.answers = {"/analytic": explorer.analytic, "/simulated": explorer.simulate}
        super().__init__((HOST, port), Handler)
        self.hosts = [f"{name}:{self.server_address[1]}" for name in (HOST, "localhost")]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of browsers that hang up."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request: the page, the equations' answer, or a simulation's."""

    server: Server
    timeout = 10.0
    server_version, sys_version = "specfleet", ""

    def do_GET(self) -> None:
        """Answer with the page."""
        if refusal := self._refusal(["/"]):
            self._refuse(*refusal)
        else:
            content, policy = self.server.page
            self._send(200, content, "text/html; charset=utf-8", policy)

    def do_POST(self) -> None:
        """Answer sliders (JSON) with numbers (JSON)."""
        if refusal := self._refusal(list(self.server.answers)):
            self._refuse(*refusal)
            return
        try:
            answer = self.server.answers[self.path](self._sliders())
        except InputError as error:
            self._refuse(400, str(error))
        except BusyError as error:
            self._refuse(503, str(error))
        else:
            self._send(200, msgspec.json.encode(answer))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (as http.server calls it)
        """Write no line a request: a moved slider asks many times a second."""

    def _refusal(self, paths: list[str]) -> tuple[int, str] | None:
        """Return why not to answer: another page in the browser asks, or by a name of its own for this host."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in self.server.hosts:
            return 403, f"Host {shortened(host)}; allowed: {', '.join(self.server.hosts)}"
        is_link = self.command == "GET" and self.headers.get("Sec-Fetch-Dest") == "document"  # followed in any page
        is_ours = is_link or self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        if origin not in (None, f"http://{host}") or not is_ours:
            return 403, "another page asks; allowed: the page that is served here"
        return None if self.path in paths else (404, f"{shortened(self.path)}; allowed: {', '.join(paths)}")

    def _sliders(self) -> Sliders:
        kind, length = self.headers.get_content_type(), self.headers.get("Content-Length", "")
        if kind != "application/json":  # which no other page can send without asking first
            raise InputError(f"Content-Type {shortened(kind)}; allowed: application/json")
        if not re.fullmatch("[0-9]{1,6}", length) or int(length) > LONGEST_BYTES:
            raise InputError(f"Content-Length {shortened(length)}; allowed: up to {LONGEST_BYTES}")
        text = self.rfile.read(int(length)).decode(errors="replace")
        return convert(parse_json(text, "sliders"), Sliders, "sliders")

    def _refuse(self, status: int, text: str) -> None:
        self._send(status, json.dumps({"error": " ".join(text.split())}).encode())

    def _send(self, status: int, content: bytes, kind: str = "application/json", policy: str = NOTHING) -> None:
        self.send_response(status)
        own = {"Content-Type": kind, "Content-Length": str(len(content)), "Content-Security-Policy": policy}
        for name, value in (own | HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def explore_page(scenario: Scenario, port: int = 0) -> Iterator[str]:
    """Serve the page on loopback until the block ends, and yield its address; a running simulation ends first.

    - `port`: 0 for any that is free.

    Raises InputError where the scenario is no star, or the port cannot be bound.
    """
    explorer = Explorer(scenario)
    try:
        server = Server(explorer, port)
    except (OSError, OverflowError) as error:
        raise InputError(f"--port {port}: {error}; give another port, or none for any that is free") from None
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{server.hosts[0]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        explorer.running.acquire(timeout=10.0)  # a process that ends within a compiled loop may crash
