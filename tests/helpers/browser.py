"""Scripts in a page, run by a real browser; those in Node see the page's functions alone."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
COMMAND = os.environ.get("SPECFLEET_BROWSER") or next(filter(shutil.which, NAMES), None)
OPTIONS = ("--headless", "--no-sandbox", "--dump-dom", "--window-size=500,844")
VIRTUAL = "--virtual-time-budget=2000"
NEEDS_ONE = [
    pytest.mark.slow,
    pytest.mark.skipif(COMMAND is None, reason="no Chromium; SPECFLEET_BROWSER may name one"),
]


def value_in(page: Path, script: str, media: str = "screen", clock: str = VIRTUAL) -> Any:
    """The value of a script at the end of the page; styles of that medium count on the screen, too."""
    watching = '<script>errors = []; addEventListener("error", (event) => errors.push(event.message));</script>'
    said = f"<script>(async () => document.title = JSON.stringify(await ({script})))();</script>"
    text = page.read_text().replace("<style>", f"{watching}<style>").replace(f"@media {media}", "@media screen")
    changed = page.with_name("changed.html")
    changed.write_text(text + said)
    command = [COMMAND, *OPTIONS, clock, f"--user-data-dir={page.parent / 'browser'}", changed.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    (title,) = re.findall("<title>(.*?)</title>", shown)
    return json.loads(html.unescape(title))
